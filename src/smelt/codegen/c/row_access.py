"""Row-affine buffers: which buffers a kernel touches row by row.

Input: the nests of one kernel. Output: the indices that count its rows, and uids of buffers. Invariant: of such a
buffer, whose elements are as many for each row, the row r of the kernel touches row r and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from smelt.codegen.cluster import BatchedGemm, Operand, PackedGemm, WindowGemm
from smelt.codegen.loops import Nest
from smelt.ir.kernel import Buffer, Ix, Var, flat, of, product
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.index import exact_div


@dataclass(frozen=True)
class RowIndex:
    """`row` counts the rows within the indices `batch`; a row has all of the `others`."""

    batch: tuple[Var, ...]
    row: Var
    others: tuple[Var, ...] = ()

    @property
    def vars(self) -> tuple[Var, ...]:
        return (*self.batch, self.row)

    @property
    def sizes(self) -> RowSizes:
        batches, middle = (product(v.extent for v in some) for some in (self.batch, self.others))
        return RowSizes(batches, self.row.extent, middle)


@dataclass(frozen=True)
class RowSizes:
    """`batches` times `rows` of them, each with `middle` other indices, which count faster than batches."""

    batches: Ix
    rows: Ix
    middle: Ix

    @property
    def all(self) -> Ix:
        return self.batches * self.rows


def row_affine_buffers(*nests: Nest) -> frozenset[int]:
    """Those of products with panels that all rows share."""
    if not all(isinstance(n.work, PackedGemm) for n in nests):
        return frozenset()
    return _touched_so([(nest, _loops(nest)) for nest in nests])


def row_affine_of_b2b(producer: Nest, consumer: Nest) -> tuple[RowSizes, frozenset[int]] | None:
    """Those of products of run-time operands, whose rows are the same ones of some batch indices."""
    for index in _row_indices(consumer):
        if not all(is_own(s.buffer, s.offset, index.vars) for s in consumer.stores):
            continue
        for first in _row_indices(producer):
            if first.sizes == index.sizes:
                return index.sizes, _touched_so([(producer, first.vars), (consumer, index.vars)])
    return None


def is_own(buffer: Buffer, offset: Ix, rows: Sequence[Var]) -> bool:
    """Whether the offset is the row's start plus something that is the same for all rows: as every access is inside of
    the buffer, so is that of the first row and that of the last, and what is added stays within one row."""
    extents = tuple(v.extent for v in rows)
    width = exact_div(buffer.elements, product(extents))
    if width is None or offset.data:
        return False
    return not ((offset - flat(tuple(of(v) for v in rows), extents) * width).vars & set(rows))


def _loops(nest: Nest) -> list[Var]:
    return [v for v in nest.outer if v != nest.vector]


def _row_indices(nest: Nest) -> Iterator[RowIndex]:
    *batch, row = _loops(nest)
    for count in range(len(batch) + 1):
        yield RowIndex(tuple(batch[:count]), row, tuple(batch[count:]))


def _touched_so(nests: Sequence[tuple[Nest, Sequence[Var]]]) -> frozenset[int]:
    found: dict[int, bool] = {}
    for nest, rows in nests:
        for buffer, offset in _accesses(nest):
            own = offset is None or is_own(buffer, offset, rows)
            found[buffer.uid] = found.get(buffer.uid, True) and own
        found.update((buffer.uid, False) for buffer in _shared(nest))
    return frozenset(uid for uid, own in found.items() if own)


def _accesses(nest: Nest) -> Iterator[tuple[Buffer, Ix | None]]:
    """None: whole rows, one after the other."""
    match nest.work:
        case BatchedGemm(left=Operand() as left):
            yield left.buffer, left.offset
        case PackedGemm(left=Operand() as left) | WindowGemm(image=left):
            yield left.buffer, None
        case _:
            pass
    for store in nest.stores:
        yield store.buffer, store.offset
    for node in E.walk(*(s.value for s in nest.stores), *(r.value for r in nest.reductions)):
        if isinstance(node.kind, E.Load):
            yield node.kind.buffer, node.kind.offset


def _shared(nest: Nest) -> list[Buffer]:
    """Right operands, of which every row reads all."""
    if not isinstance(nest.work, BatchedGemm):
        return []
    operands = [nest.work.right, nest.work.unpacked, *(segment.source for segment in nest.work.segments)]
    return [operand.buffer for operand in operands if operand is not None]
