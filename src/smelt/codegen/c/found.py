"""Sizes that a function of the region finds in its data, and the kernels that wait for them.

Input: kernels in an order that respects what they read. Output: the same, those that use a size behind the function
that finds it. Invariant: the place where a function leaves its sizes is a buffer like any other, which whoever uses
them reads: kernels are ordered and grouped by what they touch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from smelt.ir.kernel import Buffer, Ix, Sym, Unsupported, of
from smelt.ir.kernel.index import Atom, substitute

from .arena import Lifetime
from .emit import Kernel
from .groups import shared_writes


def sizes_of(kernel: Kernel) -> list[Ix]:
    """All sizes that a launch of the kernel states."""
    sizes = [kernel.units, kernel.unit_cost, kernel.row_bytes, *(of(s) for s in kernel.symbols)]
    sizes += [kernel.chunked[0]] if kernel.chunked else []
    sizes += list(kernel.product.all()) if kernel.product is not None else []
    return sizes + list(kernel.window.numbers if kernel.window is not None else ())


def found_sizes(kernels: Iterable[Kernel]) -> dict[Sym, Buffer]:
    """Where each size lies that a function finds. The buffers get their names."""
    found: dict[Sym, Buffer] = {}
    for kernel in kernels:
        if kernel.extern is not None and kernel.extern.found is not None:
            kernel.extern.found.name = f"found{len(found)}"
            found |= {symbol: kernel.extern.found for symbol, _ in kernel.extern.function.found}
    return found


def reads(size: Ix, found: dict[Sym, Buffer]) -> dict[int, Buffer]:
    """The buffers with found sizes that a size is made of, those that it is broadcast from included."""
    made: dict[int, Buffer] = {}
    for symbol in size.syms:
        if symbol in found:
            made[found[symbol].uid] = found[symbol]
        for member in symbol.members:
            made |= reads(member, found)
    return made


def behind_found(kernels: Sequence[Kernel], found: dict[Sym, Buffer]) -> list[tuple[int, Kernel]]:
    """Every kernel with its old place, in the new order."""
    if not found:
        return list(enumerate(kernels))
    waiting = [(place, _reading(kernel, found)) for place, kernel in enumerate(kernels)]
    makers = {b.uid for b in found.values()}
    order: list[tuple[int, Kernel]] = []
    made: set[int] = set()
    while waiting:
        held: list[tuple[int, Kernel]] = []
        for place, kernel in waiting:
            needed = {b.uid for b in kernel.buffers} & makers - (kernel.written or frozenset())
            if needed <= made and not any(shared_writes(kernel, other) - makers for _, other in held):
                order.append((place, kernel))
                made |= makers & (kernel.written or frozenset())
            else:
                held.append((place, kernel))
        if len(held) == len(waiting):
            raise Unsupported("a size that is found in data is needed before it is known")
        waiting = held
    return order


def _reading(kernel: Kernel, found: dict[Sym, Buffer]) -> Kernel:
    used = {uid: b for size in sizes_of(kernel) for uid, b in reads(size, found).items()}
    own = {b.uid for b in kernel.buffers}
    written = kernel.written if kernel.written is not None else frozenset(own)
    return replace(kernel, buffers=(*kernel.buffers, *(b for u, b in used.items() if u not in own)), written=written)


def rooms(kernels: Iterable[Kernel]) -> dict[int, Mapping[Atom, Ix]]:
    """By buffer: the most that sizes can be which its function has yet to find."""
    made: dict[int, Mapping[Atom, Ix]] = {}
    for call in (k.extern for k in kernels if k.extern is not None and k.extern.found is not None):
        made |= {b.uid: dict(call.function.found) for b in call.results if b is not None}
    return made


Known = Callable[[Iterable[Ix]], bool]
T = TypeVar("T")


@dataclass
class Waiting:
    """What is allocated and checked as soon as its sizes are known."""

    outputs: list[tuple[int, Buffer]] = field(default_factory=list[tuple[int, Buffer]])
    temporaries: list[Lifetime] = field(default_factory=list[Lifetime])
    kernels: list[Kernel] = field(default_factory=list[Kernel])
    requirements: list[tuple[Ix, Ix]] = field(default_factory=list[tuple[Ix, Ix]])
    rooms: Mapping[int, Mapping[Atom, Ix]] = field(default_factory=dict[int, Mapping[Atom, Ix]])

    def room(self, buffer: Buffer) -> tuple[Ix, ...]:
        most = self.rooms.get(buffer.uid, {})
        return tuple(substitute(size, most) for size in buffer.shape)

    def take_outputs(self, known: Known) -> list[tuple[int, Buffer]]:
        taken, self.outputs = _parted(self.outputs, lambda one: known(one[1].shape))
        return taken

    def take_temporaries(self, known: Known) -> list[Lifetime]:
        taken, self.temporaries = _parted(self.temporaries, lambda one: known(self.room(one.buffer)))
        return taken

    def take_kernels(self, known: Known) -> list[Kernel]:
        taken, self.kernels = _parted(self.kernels, lambda one: known([*sizes_of(one), *one.data_extents]))
        return taken

    def take_requirements(self, known: Known) -> list[tuple[Ix, Ix]]:
        taken, self.requirements = _parted(self.requirements, known)
        return taken

    def symbols(self) -> list[Sym]:
        sizes = [s for _, b in self.outputs for s in b.shape]
        sizes += [s for one in self.temporaries for s in one.buffer.shape]
        sizes += [s for k in self.kernels for s in sizes_of(k)] + [s for pair in self.requirements for s in pair]
        return list(dict.fromkeys(y for s in sizes for y in sorted(s.syms, key=lambda y: y.name)))


def _parted(items: Sequence[T], chosen: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    return [one for one in items if chosen(one)], [one for one in items if not chosen(one)]
