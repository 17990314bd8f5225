"""Sibling GEMMs: products of one operand whose results meet element by element run together (gate and up).

Input: two clusters that an element-wise tensor reads. Output: whether the later one may move into the earlier one, and
the move. Invariant: the later cluster needs nothing that is computed after the earlier one starts, so the order holds;
both walk the same rows and columns of products with the same left operand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from smelt.ir.kernel import Ix, Tensor, of
from smelt.ir.kernel.index import Atom, substitute

from .cluster import Cluster
from .kernel_forms import PackedContraction

MOST_SIBLINGS = 3


def earlier_sibling(latest: Cluster, others: Iterable[Cluster]) -> Cluster | None:
    """One of `others` that multiplies the same operand over loops of the same sizes, element by element so far."""
    if not _plain(latest):
        return None
    for cluster in others:
        if cluster.order < latest.order and _plain(cluster) and _alike(cluster, latest):
            return cluster
    return None


def _plain(cluster: Cluster) -> bool:
    made = cluster.matmul
    if made is None or not isinstance(made.definition, PackedContraction) or cluster.reduced or cluster.pieces:
        return False
    return cluster.producer is None and cluster.kept is None


def _alike(first: Cluster, second: Cluster) -> bool:
    assert first.lhs is not None and second.lhs is not None
    same = first.lhs.buffer.uid == second.lhs.buffer.uid and _extents(first) == _extents(second)
    return same and len(first.siblings) + len(second.siblings) + 1 <= MOST_SIBLINGS


def _extents(cluster: Cluster) -> Sequence[Ix]:
    return [v.extent for v in cluster.vars]


def absorb(first: Cluster, second: Cluster) -> list[Tensor]:
    """Move everything of `second` into `first`'s loops; gives what moved. `second` is left empty."""
    table: dict[Atom, Ix] = {old: of(new) for old, new in zip(second.vars, first.vars, strict=True)}
    assert second.matmul is not None
    first.siblings += [second.matmul, *second.siblings]
    for tensor, where in second.members.items():
        first.members[tensor] = tuple(substitute(i, table) for i in where)
        first.bound[tensor] = {v: substitute(i, table) for v, i in second.bound[tensor].items()}
    first.sources += [s for s in second.sources if s not in first.sources]
    moved = list(second.members)
    second.matmul, second.lhs, second.siblings = None, None, []
    second.members, second.bound, second.sources = {}, {}, []
    return moved
