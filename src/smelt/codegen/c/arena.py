"""Where the temporaries of a region lie: one block, cut into slots that are used again.

Input: temporaries with the first and last kernel that touch each. Output: the slots, each a list of temporaries that
follow each other in time. Invariant: two temporaries of one slot never live at the same time, but for one that a kernel
writes over another, element by element; so any sizes are right, and typical ones only decide which slot fits best.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from smelt.codegen.cluster import Schedule
from smelt.ir.kernel import Buffer, Ix, ix
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.index import Atom, substitute

from .emit import Kernel

TYPICAL_SIZE = 128


@dataclass
class Lifetime:
    """`first` and `last` are places in the order of groups of kernels; the first may write it `over` any of these."""

    buffer: Buffer
    first: int
    last: int
    over: frozenset[int] = frozenset()


@dataclass
class Slot:
    held: list[Buffer]
    typical_bytes: int
    free_after: int


def lifetimes(plan: Schedule, groups: Sequence[Sequence[Kernel]], chained: Collection[int] = ()) -> list[Lifetime]:
    """Every temporary that kernels touch, in the order of first use. Kernels of one group run at the same time.

    Groups at `chained` places run band by band, in buffers of their own.
    """
    temporaries = {b.uid: b for b in plan.temporaries.values()}
    found: dict[int, Lifetime] = {}
    for place, group in enumerate(groups):
        for buffer in (b for kernel in group for b in kernel.buffers):
            if buffer.uid in temporaries:
                found.setdefault(buffer.uid, Lifetime(temporaries[buffer.uid], place, place)).last = place
    for place, group in enumerate(groups):
        if place not in chained:
            _write_over(group, place, found)
    return list(found.values())


def _write_over(group: Sequence[Kernel], place: int, found: dict[int, Lifetime]) -> None:
    """A result takes the memory of what its kernel, and no other of the group, reads for the last time."""
    touched = Counter(uid for kernel in group for uid in {b.uid for b in kernel.buffers})
    for kernel in group:
        ending = {uid for uid in kernel.over if touched[uid] == 1 and uid in found and found[uid].last == place}
        for uid in kernel.written or ():
            if uid in found and found[uid].first == place and touched[uid] == 1:
                found[uid].over = frozenset(ending)


def assign_slots(temporaries: Sequence[Lifetime]) -> list[Slot]:
    """Best fit in order of first use: the free slot that wastes least, else the one that grows least."""
    slots: list[Slot] = []
    for one in temporaries:
        size = _typical_bytes(one.buffer)
        under = [s for s in slots if s.held[-1].uid in one.over]
        free = [s for s in slots if s.free_after < one.first]
        roomy = [s for s in free if s.typical_bytes >= size]
        if under:
            slot = under[0]
        elif roomy:
            slot = min(roomy, key=lambda s: s.typical_bytes)
        elif free:
            slot = max(free, key=lambda s: s.typical_bytes)
        else:
            slot = Slot([], 0, -1)
            slots.append(slot)
        slot.held.append(one.buffer)
        slot.typical_bytes = max(slot.typical_bytes, size)
        slot.free_after = one.last
    return slots


def _typical_bytes(buffer: Buffer) -> int:
    """The size when every symbol is `TYPICAL_SIZE`; what is still not a number counts as nothing."""
    elements = buffer.elements
    table: dict[Atom, Ix] = {s: ix(TYPICAL_SIZE) for s in elements.syms}
    const = substitute(elements, table).const
    return max(0, const or 0) * E.SIZE_BYTES[buffer.dtype]
