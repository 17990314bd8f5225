"""The order of tensors that are computed ahead of the clusters, from inputs alone.

Input: clusters in the order they were decided on, which is not the order of their needs. Output: the same tensors, a
cluster after those that it reads. Invariant: no cluster reads what it stores itself, except at the very index where it
stores it; a cluster that would is cut into one cluster per tensor, which is always possible.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from smelt.ir.kernel import Expr, Ix, Tensor
from smelt.ir.kernel import expr as E

if TYPE_CHECKING:
    from .cluster import Cluster

Index = tuple[Ix, ...]


def ordered(prelude: Sequence[Cluster], inlined: Collection[Tensor]) -> list[Cluster]:
    """Sort by needs; cut what stands in its own way."""
    clusters = list(prelude)
    while True:
        ordered, stuck = _sorted(clusters, inlined)
        if not stuck:
            return ordered
        cut = {id(c) for c in stuck if len(c.members) > 1}
        assert cut, "tensors depend on each other in a circle"
        clusters = [part for c in clusters for part in (_singles(c) if id(c) in cut else [c])]


def _sorted(clusters: Sequence[Cluster], inlined: Collection[Tensor]) -> tuple[list[Cluster], list[Cluster]]:
    """(ordered, those that wait for themselves or for each other)."""
    home = {tensor: place for place, cluster in enumerate(clusters) for tensor in cluster.members}
    needs = [_needs(place, cluster, home, inlined) for place, cluster in enumerate(clusters)]
    users: list[list[int]] = [[] for _ in clusters]
    for place, needed in enumerate(needs):
        for other in needed:
            users[other].append(place)
    waiting = [len(needed) for needed in needs]
    ready = [place for place, count in enumerate(waiting) if count == 0]
    for place in ready:
        for user in users[place]:
            waiting[user] -= 1
            if waiting[user] == 0:
                ready.append(user)
    done = set(ready)
    return [clusters[p] for p in ready], [c for p, c in enumerate(clusters) if p not in done]


def _needs(place: int, cluster: Cluster, home: dict[Tensor, int], inlined: Collection[Tensor]) -> set[int]:
    """Clusters that must run before; the cluster itself where it reads its own tensors at another index."""
    needed: set[int] = set()
    for tensor, where in cluster.members.items():
        for read, index in _reads(tensor.expand(where), inlined):
            if read in home and not (home[read] == place and cluster.members[read] == index):
                needed.add(home[read])
    return needed


def _reads(root: Expr, inlined: Collection[Tensor]) -> list[tuple[Tensor, Index]]:
    """What an element is computed from, inlined tensors looked through."""
    found: list[tuple[Tensor, Index]] = []
    seen = {root.uid}
    stack = [root]
    while stack:
        for node in E.walk(stack.pop()):
            kind = node.kind
            if not isinstance(kind, E.Ref):
                continue
            if kind.tensor not in inlined:
                found.append((kind.tensor, kind.index))
                continue
            below = kind.tensor.expand(kind.index)
            if below.uid not in seen:
                seen.add(below.uid)
                stack.append(below)
    return found


def _singles(cluster: Cluster) -> list[Cluster]:
    return [
        dataclasses.replace(cluster, members={tensor: where}, bound={tensor: cluster.bound[tensor]}, stores=[],
                            reductions={}, sources=[tensor.source] if tensor.source else [])
        for tensor, where in cluster.members.items()
    ]  # fmt: skip
