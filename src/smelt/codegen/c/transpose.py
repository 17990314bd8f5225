"""Copies that transpose a matrix, as C: NHWC to NCHW and back, transpositions.

Input: a nest that only copies, and walks its result along another axis than its source. Output: a kernel whose units
are tiles. Invariant: elements are copied bit for bit; a tile's lines, read and written, stay in L1.
"""

from __future__ import annotations

from dataclasses import dataclass

from smelt.codegen.cluster import Store
from smelt.codegen.loops import Nest
from smelt.ir.kernel import Ix, Var, fn, product
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.index import coefficient

from .scope import Scope
from .values import ValueWriter

WORD_BYTES = 4
LEAST_EXTENT = 4
TILE_LENGTH = 128  # elements of a tile side by side in the result
TILE_HEIGHT = 32  # elements of a tile side by side in the source


@dataclass(frozen=True)
class Transposition:
    """`along` has its elements side by side in the result, `across` in the source."""

    store: Store
    load: E.Load
    along: Var
    across: Var


def find_transpose(nest: Nest) -> Transposition | None:
    """What is transposed by a nest that does nothing else."""
    store, load = _copied(nest)
    if store is None or load is None or nest.vector is None or not _wide_enough(nest.vector):
        return None
    step, read_step = coefficient(store.offset, nest.vector), coefficient(load.offset, nest.vector)
    if step is None or step[0].const != 1 or read_step is None or read_step[0].const in (0, 1):
        return None
    across = [v for v in nest.outer if v != nest.vector and _is_transposed(v, store, load)]
    return Transposition(store, load, nest.vector, across[-1]) if across else None


def _copied(nest: Nest) -> tuple[Store, E.Load] | tuple[None, None]:
    if not nest.columns or nest.products or nest.scan is not None or nest.inner or nest.reductions:
        return None, None
    if len(nest.stores) != 1 or not isinstance(nest.stores[0].value.kind, E.Load):
        return None, None
    store, load = nest.stores[0], nest.stores[0].value.kind
    same = store.value.dtype == store.buffer.dtype == load.buffer.dtype and store.buffer.uid != load.buffer.uid
    if not same or E.SIZE_BYTES[load.buffer.dtype] != WORD_BYTES or store.offset.data or load.offset.data:
        return None, None
    return store, load


def _wide_enough(var: Var) -> bool:
    return var.extent.const is None or var.extent.const >= LEAST_EXTENT


def _is_transposed(var: Var, store: Store, load: E.Load) -> bool:
    step, read_step = coefficient(store.offset, var), coefficient(load.offset, var)
    return step is not None and read_step is not None and read_step[0].const == 1 and _wide_enough(var)


class TransposeWriter(ValueWriter):
    """Units are tiles, the ones along the result side by side."""

    def __init__(self, nest: Nest, copy: Transposition) -> None:
        super().__init__(nest)
        self.copy = copy

    def units(self) -> Ix:
        return product(count for _, count, _ in self._axes())

    def unit_cost(self) -> Ix:
        return fn("min", TILE_LENGTH, self.copy.along.extent) * fn("min", TILE_HEIGHT, self.copy.across.extent)

    def body(self) -> list[str]:
        self.scopes.append(Scope())
        tile = self._tile()
        unit = [*self._places(), *self.scopes.pop().lines, tile]
        head = ["int64_t u = task * t->step;", "const int64_t stop = smelt_min(u + t->step, t->units);"]
        return [*self.scopes[0].lines, *head, "for (; u < stop; u++) {", *("  " + line for line in unit), "}"]

    def _axes(self) -> list[tuple[Var, Ix, int]]:
        """Each loop, how many steps it has, and the elements of one."""
        along, across = self.copy.along, self.copy.across
        others = [(v, v.extent, 1) for v in self.nest.outer if v not in (along, across)]
        tiles = [(across, _tiles(across, TILE_HEIGHT), TILE_HEIGHT), (along, _tiles(along, TILE_LENGTH), TILE_LENGTH)]
        return [*others, *tiles]

    def _places(self) -> list[str]:
        """Where the unit's tile begins."""
        lines = ["int64_t rest = u;"]
        for var, count, step in reversed(self._axes()):
            steps = self._integer(count)
            lines.append(f"const int64_t {self.var_names[var]} = rest % ({steps}) * {step};")
            lines.append(f"rest /= {steps};")
        return lines

    def _tile(self) -> str:
        copy = self.copy
        read, write = coefficient(copy.load.offset, copy.along), coefficient(copy.store.offset, copy.across)
        assert read is not None and write is not None
        rows, cols = self._left(copy.along, TILE_LENGTH), self._left(copy.across, TILE_HEIGHT)
        source = f"{self._buffer(copy.load.buffer)} + {self._integer(copy.load.offset)}, {self._integer(read[0])}"
        result = f"{self._buffer(copy.store.buffer)} + {self._integer(copy.store.offset)}, {self._integer(write[0])}"
        return f"smelt_transpose({source}, {rows}, {cols}, {result});"

    def _left(self, var: Var, most: int) -> str:
        return f"smelt_min({most}, {self._integer(var.extent)} - {self.var_names[var]})"


def _tiles(var: Var, size: int) -> Ix:
    return (var.extent + (size - 1)) // size
