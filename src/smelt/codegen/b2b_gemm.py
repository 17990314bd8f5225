"""Back-to-back GEMM fusion: a GEMM whose left operand is made row by row in an earlier GEMM's epilogue.

Input: the element that a product reads as its left operand, and the cluster that computes it. Output: the member of
that cluster to keep in the task's block, or None; for products with constant panels, whether that may be. Invariant:
both products walk the same batches and the same rows in the same order, and one row of the block is one row of the
left operand, so that no element leaves the task.
"""

from __future__ import annotations

from collections.abc import Sequence

from smelt.ir.kernel import Buffer, Expr, Ix, Tensor, Var, flat, ix, of
from smelt.ir.kernel import expr as E

from .cluster import BatchedGemm, Cluster, FusibleGemm, Operand, PackedGemm
from .kernel_forms import PackedContraction
from .machine_sizes import machine_sizes

NEAR_PANELS = machine_sizes()["fused_floats"]
_GEMV_ROWS = 4  # that one task computes at once
_CUT_BY_COLUMNS = 100_000  # multiply-adds of a product of few rows from which on two threads are better than one


def link(producer: Cluster, element: Expr, loops: Sequence[Var], depth: Var) -> Tensor | None:
    """The member of `producer` that a product over `loops` reads whole rows of, at the producer's own rows."""
    kind = element.kind
    if not isinstance(kind, E.Ref) or kind.tensor not in producer.members or not _may_produce(producer, kind.tensor):
        return None
    placed = _placed(producer, kind.tensor, kind.index)
    if placed is None:
        return None
    *batch, row, column = producer.vars
    if placed[column] != of(depth) or column.extent != depth.extent:
        return None
    if placed[row] != _index(loops[-2]) or row.extent != loops[-2].extent:
        return None
    mine = flat([_index(v) for v in loops[:-2]], [v.extent for v in loops[:-2]])
    theirs = flat([placed[v] for v in batch], [v.extent for v in batch])
    same = _count(batch) == _count(loops[:-2]) and mine == theirs
    return kind.tensor if same else None


def may_keep_rows(producer: Cluster, member: Tensor, panels: Ix) -> bool:
    """Whether a product with constant panels of so many floats may read the member's rows in the producer's task: a
    product of constant panels too, and all panels stay near while rows pass by. Few rows are one task: their product
    is cut by columns where it is large enough, and its rows are whole only after that."""
    work = producer.work
    if not isinstance(work, PackedGemm) or work.siblings or isinstance(work.left, Cluster) or work.kept is not None:
        return False
    made = work.made.definition
    assert isinstance(made, PackedContraction)
    if member.dtype != "f32" or producer.members.get(member) != tuple(_index(v) for v in producer.vars):
        return False
    depth, rows = made.a.shape[-1], _count(producer.vars[:-1]).const
    if rows is not None and rows <= _GEMV_ROWS and ((depth * made.columns).const or 0) >= _CUT_BY_COLUMNS:
        return False
    near = (panels + depth * made.columns).const
    return near is not None and near <= NEAR_PANELS and member.shape == tuple(v.extent for v in producer.vars)


def _may_produce(producer: Cluster, member: Tensor) -> bool:
    """A product of run-time operands that does not take part in a fusion yet."""
    work = producer.work
    return (
        isinstance(work, BatchedGemm) and isinstance(work.left, Operand) and work.kept is None and member.dtype == "f32"
    )


def _placed(producer: Cluster, member: Tensor, index: Sequence[Ix]) -> dict[Var, Ix] | None:
    """The producer's variables in terms of the reader's: each must be one whole component of the member's index."""
    placed: dict[Var, Ix] = {}
    for place, component in zip(producer.members[member], index, strict=True):
        if place.const is not None:
            continue
        var = next((v for v in producer.vars if of(v) == place), None)
        if var is None:
            return None
        placed[var] = component
    missing = [v for v in producer.vars if v not in placed]
    if any(v.extent.const != 1 for v in missing):
        return None
    return {**placed, **{v: ix(0) for v in missing}}


def _index(var: Var) -> Ix:
    return ix(0) if var.extent.const == 1 else of(var)


def _count(loops: Sequence[Var]) -> Ix:
    total = ix(1)
    for var in loops:
        total = total * var.extent
    return total


def keep(producer: Cluster, member: Tensor) -> None:
    """Keep a member for the consumer: in the task's block, a buffer of one row whose `offset` is the column."""
    assert isinstance(producer.work, FusibleGemm)
    producer.work.kept = member, Buffer("block", "f32", (producer.vars[-1].extent,))
