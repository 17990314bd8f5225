"""Acyclic clustering of one graph's claimed nodes.

Input: a dependency list per node (indices in topological order) and which nodes are claimed. Output: a cluster
number per claimed node. Invariant: contracting every cluster to one vertex leaves an acyclic graph.

Every node gets a level such that along an edge the level never falls, and rises on an edge from an unclaimed to a
claimed node. A path that leaves the claimed nodes of one level therefore never returns to that level: the claimed
nodes of a level are jointly convex, and its connected parts are independent of each other. Any levels with these
properties will do; they start as early as possible, then a cluster is moved later where that joins it to a consumer.
"""

from __future__ import annotations

from collections.abc import Sequence

NO_CLUSTER = -1
_FAR = 1 << 60


def cluster(predecessors: Sequence[Sequence[int]], claimed: Sequence[bool]) -> list[int]:
    """Number the clusters of claimed nodes 0, 1, ... in a topological order of the contracted graph."""
    level = earliest_levels(predecessors, claimed)
    parts = _Parts(len(claimed))
    for node, sources in enumerate(predecessors):
        for source in sources:
            if claimed[node] and claimed[source] and level[node] == level[source]:
                parts.join(node, source)
    _sink(predecessors, claimed, level, parts)
    return _numbered(claimed, level, parts)


def earliest_levels(predecessors: Sequence[Sequence[int]], claimed: Sequence[bool]) -> list[int]:
    """The least level of every node; unclaimed nodes without claimed ancestors are at -1."""
    level: list[int] = []
    for node, sources in enumerate(predecessors):
        if claimed[node]:
            level.append(max((level[s] + (not claimed[s]) for s in sources), default=0))
        else:
            level.append(max((level[s] for s in sources), default=-1))
    return level


def contract(
    vertices: Sequence[list[int]], predecessors: Sequence[Sequence[int]], numbers: Sequence[int]
) -> tuple[list[list[int]], list[list[int]]]:
    """The graph with each cluster as one vertex, in topological order: the members of every vertex, and its
    predecessors. `vertices` are the members of those that the clusters are made of."""
    first: dict[int, int] = {}
    parts = _Parts(len(numbers))
    for node, number in enumerate(numbers):
        if number != NO_CLUSTER:
            parts.join(first.setdefault(number, node), node)
    members, successors = _contract(predecessors, parts)
    order = _topological(successors)
    place = {item: at for at, item in enumerate(order)}
    sources: list[list[int]] = [[] for _ in order]
    for item, targets in successors.items():
        for target in targets:
            sources[place[target]].append(place[item])
    return [[one for node in members[item] for one in vertices[node]] for item in order], sources


class _Parts:
    """Disjoint sets of node indices."""

    def __init__(self, count: int) -> None:
        self._parent = list(range(count))

    def root(self, node: int) -> int:
        parent = self._parent
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    def join(self, one: int, other: int) -> None:
        one, other = self.root(one), self.root(other)
        if one != other:
            self._parent[max(one, other)] = min(one, other)


def _sink(predecessors: Sequence[Sequence[int]], claimed: Sequence[bool], level: list[int], parts: _Parts) -> None:
    """Move clusters later, consumers first, wherever a cluster then meets a claimed consumer at its level."""
    members, successors = _contract(predecessors, parts)
    late: dict[int, int] = {}
    for item in reversed(_topological(successors)):
        bound = _bound(item, successors[item], claimed, late)
        if not claimed[item]:
            late[item] = bound
            continue
        partners = [s for s in successors[item] if claimed[s] and late[s] == bound]
        late[item] = bound if partners else level[item]
        for node in members[item]:
            level[node] = late[item]
        for partner in partners:
            parts.join(item, partner)


def _bound(item: int, consumers: Sequence[int], claimed: Sequence[bool], late: dict[int, int]) -> int:
    if claimed[item]:
        return min((late[c] for c in consumers), default=_FAR)
    return min((late[c] - claimed[c] for c in consumers), default=_FAR)


def _contract(
    predecessors: Sequence[Sequence[int]], parts: _Parts
) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Members and successors of every contracted item; an item is named by its root's index before any sinking."""
    members: dict[int, list[int]] = {}
    successors: dict[int, dict[int, None]] = {}
    for node, sources in enumerate(predecessors):
        item = parts.root(node)
        members.setdefault(item, []).append(node)
        successors.setdefault(item, {})
        for source in sources:
            origin = parts.root(source)
            if origin != item:
                successors.setdefault(origin, {})[item] = None
    return members, {item: list(targets) for item, targets in successors.items()}


def _topological(successors: dict[int, list[int]]) -> list[int]:
    waiting = dict.fromkeys(successors, 0)
    for targets in successors.values():
        for target in targets:
            waiting[target] += 1
    ready = [item for item, count in waiting.items() if count == 0]
    order: list[int] = []
    while ready:
        item = ready.pop()
        order.append(item)
        for target in successors[item]:
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    return order


def _numbered(claimed: Sequence[bool], level: Sequence[int], parts: _Parts) -> list[int]:
    """Clusters of a lower level come first; within a level, the one whose first node comes first."""
    first: dict[int, tuple[int, int]] = {}
    for node, is_claimed in enumerate(claimed):
        if is_claimed:
            first.setdefault(parts.root(node), (level[node], node))
    number = {root: index for index, root in enumerate(sorted(first, key=lambda root: first[root]))}
    return [number[parts.root(node)] if is_claimed else NO_CLUSTER for node, is_claimed in enumerate(claimed)]
