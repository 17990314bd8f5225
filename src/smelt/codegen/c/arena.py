"""Where the temporaries of a region lie: one block, cut into slots that are used again.

Input: temporaries with the first and last kernel that touch each. Output: the slots, each a list of temporaries that
follow each other in time. Invariant: two temporaries of one slot never live at the same time, but for one that a kernel
writes over another, element by element; so any sizes are right, and typical ones only decide which slot fits best.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from smelt.codegen.cluster import Schedule
from smelt.ir.kernel import Buffer, Ix, ix
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.index import Atom, substitute

from .emit import Kernel
from .tile_fusion import Launches

TYPICAL_SIZE = 128
Moment = tuple[int, int]  # a group, and a step of it


@dataclass
class Lifetime:
    """The first and the last moment at which it is touched; the first kernel may write it `over` any of these."""

    buffer: Buffer
    first: Moment
    last: Moment
    over: frozenset[int] = frozenset()


@dataclass
class Slot:
    """What lies there, in the order of time."""

    lives: list[Lifetime]
    typical_bytes: int

    @property
    def held(self) -> list[Buffer]:
        return [one.buffer for one in self.lives]


def lifetimes(plan: Schedule, groups: Sequence[Sequence[Kernel]], launches: Launches) -> list[Lifetime]:
    """Every temporary that kernels touch, in the order of first use. Kernels of one group run at the same time; where
    they run in order, those of one step do, and what all touch by rows of their own lives from step to step.

    Groups that are tiled run by spatial tiles, in buffers of their own.
    """
    temporaries = {b.uid: b for b in plan.temporaries.values()}
    found: dict[int, Lifetime] = {}
    for place, group in enumerate(groups):
        counts = launches.row_fused.get(place, (len(group),))
        ordered = _row_affine(group) if len(counts) > 1 else frozenset[int]()
        step_of = [step for step, count in enumerate(counts) for _ in range(count)]
        for step, kernel in zip(step_of, group, strict=True):
            for buffer in (b for b in kernel.buffers if b.uid in temporaries):
                own = buffer.uid in ordered
                first, last = (place, step if own else 0), (place, step if own else len(counts))
                found.setdefault(buffer.uid, Lifetime(temporaries[buffer.uid], first, last)).last = last
    for place, group in enumerate(groups):
        if place not in launches.tiled and place not in launches.row_fused:
            _write_over(group, place, found)
    return list(found.values())


def _row_affine(group: Sequence[Kernel]) -> frozenset[int]:
    touched = {b.uid for kernel in group for b in kernel.buffers}
    shared = {b.uid for kernel in group for b in kernel.buffers if b.uid not in kernel.row_affine}
    return frozenset(touched - shared)


def _write_over(group: Sequence[Kernel], place: int, found: dict[int, Lifetime]) -> None:
    """A result takes the memory of what its kernel, and no other of the group, reads for the last time."""
    touched = Counter(uid for kernel in group for uid in {b.uid for b in kernel.buffers})
    for kernel in group:
        ending = {uid for uid in kernel.over if touched[uid] == 1 and uid in found and found[uid].last[0] == place}
        for uid in kernel.written or ():
            if uid in found and found[uid].first[0] == place and touched[uid] == 1:
                found[uid].over = frozenset(ending)


def assign_slots(temporaries: Sequence[Lifetime]) -> list[Slot]:
    """In order of first use, which goes on in memory that is in cache; the largest first where that takes less."""
    by_use, by_size = _by_use(temporaries), _by_size(temporaries)
    return by_size if _typical_total(by_size) < _typical_total(by_use) else by_use


def _typical_total(slots: Sequence[Slot]) -> int:
    return sum(slot.typical_bytes for slot in slots)


def _by_use(temporaries: Sequence[Lifetime]) -> list[Slot]:
    """Best fit in order of first use: the free slot that wastes least, else the one that grows least."""
    slots: list[Slot] = []
    for one in temporaries:
        size = _typical_bytes(one.buffer)
        under = [s for s in slots if s.lives[-1].buffer.uid in one.over]
        free = [s for s in slots if _follows(s.lives[-1], one)]
        roomy = [s for s in free if s.typical_bytes >= size]
        if under:
            slot = under[0]
        elif roomy:
            slot = min(roomy, key=lambda s: s.typical_bytes)
        elif free:
            slot = max(free, key=lambda s: s.typical_bytes)
        else:
            slot = Slot([], 0)
            slots.append(slot)
        slot.lives.append(one)
        slot.typical_bytes = max(slot.typical_bytes, size)
    return slots


def _by_size(temporaries: Sequence[Lifetime]) -> list[Slot]:
    """Best fit, the largest first: no slot grows."""
    slots: list[Slot] = []
    for one in sorted(temporaries, key=lambda t: -_typical_bytes(t.buffer)):
        free = [s for s in slots if all(_apart(held, one) for held in s.lives)]
        under = [s for s in free if any(held.buffer.uid in one.over for held in s.lives)]
        if not free:
            slots.append(Slot([], _typical_bytes(one.buffer)))
        slot = min(under or free or slots[-1:], key=lambda s: s.typical_bytes)
        slot.lives = sorted([*slot.lives, one], key=lambda t: (t.first, t.last))
    return slots


def _apart(left: Lifetime, right: Lifetime) -> bool:
    """Whether they never live at the same time, or the later one is written over the other."""
    if left.buffer.uid in right.over or right.buffer.uid in left.over:
        return True
    return _follows(left, right) or _follows(right, left)


def _follows(earlier: Lifetime, later: Lifetime) -> bool:
    """Kernels of a row-block fusion reach a moment with some rows before they do with others: within their group a slot
    goes on only to rows of the same length."""
    last, buffer = earlier.buffer, later.buffer
    alike = last.elements == buffer.elements and E.SIZE_BYTES[last.dtype] == E.SIZE_BYTES[buffer.dtype]
    return earlier.last < later.first and (earlier.last[0] < later.first[0] or alike)


def _typical_bytes(buffer: Buffer) -> int:
    """The size when every symbol is `TYPICAL_SIZE`; what is still not a number counts as nothing."""
    elements = buffer.elements
    table: dict[Atom, Ix] = {s: ix(TYPICAL_SIZE) for s in elements.syms}
    const = substitute(elements, table).const
    return max(0, const or 0) * E.SIZE_BYTES[buffer.dtype]
