"""Sibling GEMMs: products of one operand whose results meet element by element run together (gate and up).

Input: two clusters that an element-wise tensor reads. Output: whether the later one may move into the earlier one, and
the move. Invariant: the later cluster needs nothing that is computed after the earlier one starts, so the order holds;
both walk the same rows and columns of products with the same left operand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from smelt.ir.kernel import Ix, Tensor, of
from smelt.ir.kernel.index import Atom, substitute

from .cluster import Cluster, Loops, Operand, PackedGemm

MOST_SIBLINGS = 3


def earlier_sibling(latest: Cluster, others: Iterable[Cluster]) -> Cluster | None:
    """One of `others` that multiplies the same operand over loops of the same sizes, element by element so far."""
    last = _plain(latest)
    if last is None:
        return None
    for cluster in others:
        work = _plain(cluster) if cluster.order < latest.order else None
        if work is not None and _extents(cluster) == _extents(latest) and _alike(work, last):
            return cluster
    return None


def _plain(cluster: Cluster) -> PackedGemm | None:
    """Its product, where it is one that takes part in no fusion yet and has no reductions."""
    work = cluster.work
    if not isinstance(work, PackedGemm) or cluster.reduced or cluster.pieces:
        return None
    return work if isinstance(work.left, Operand) and work.kept is None else None


def _alike(first: PackedGemm, second: PackedGemm) -> bool:
    assert isinstance(first.left, Operand) and isinstance(second.left, Operand)
    same = first.left.buffer.uid == second.left.buffer.uid
    return same and len(first.siblings) + len(second.siblings) + 1 <= MOST_SIBLINGS


def _extents(cluster: Cluster) -> Sequence[Ix]:
    return [v.extent for v in cluster.vars]


def absorb(first: Cluster, second: Cluster) -> list[Tensor]:
    """Move everything of `second` into `first`'s loops; gives what moved. `second` is left empty."""
    table: dict[Atom, Ix] = {old: of(new) for old, new in zip(second.vars, first.vars, strict=True)}
    assert isinstance(first.work, PackedGemm)
    first.work.siblings += second.products
    for tensor, where in second.members.items():
        first.members[tensor] = tuple(substitute(i, table) for i in where)
        first.bound[tensor] = {v: substitute(i, table) for v, i in second.bound[tensor].items()}
    first.sources += [s for s in second.sources if s not in first.sources]
    moved = list(second.members)
    second.work, second.members, second.bound, second.sources = Loops(), {}, {}, []
    return moved
