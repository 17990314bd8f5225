"""Regions that failed, in smaller parts: one bad node must not cost a whole region.

Input: a plan and the regions at fault. Output: a plan with parts of those regions in their place, and, once the bad
parts are known, a plan with the good ones joined again. Invariant: the contracted graph stays acyclic. A part is a run
of its region's topological order, or what is left of one without nodes that it does not need, or a run of those. No
path leads from a run to an earlier one, none from nodes that the rest does not need to the rest, and none leaves a
region and returns. Parts have indices of their own, never used before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from smelt.ir.records import Fallback, Plan, Region
from smelt.partition.capture import make_region

WAYS = 4
FEW = 4  # nodes that are not worth a search


@dataclass(frozen=True)
class _Part:
    """Where a region lies in the one that was captured, or among nodes that were taken off it (`branch`, from 1 on)."""

    origin: int
    start: int
    branch: int = 0
    backend: str = ""

    @property
    def order(self) -> tuple[int, int, int]:
        return self.origin, self.branch, self.start


class Splitter:
    """Knows where parts come from, from one round to the next."""

    def __init__(self, plan: Plan) -> None:
        self._parts = {region.index: _Part(region.index, 0, backend=region.backend) for region in plan.regions}
        self._next = 1 + max(self._parts, default=-1)
        self._branches = 0

    def split(self, plan: Plan, faulty: Collection[int]) -> tuple[Plan, dict[int, int]]:
        """The plan with each faulty region of more than a few nodes in parts; the number of parts of each."""
        regions: list[Region] = []
        made: dict[int, int] = {}
        for region in plan.regions:
            if region.index in faulty and len(region.nodes) > FEW:
                parts = self._cut(region)
                made[region.index] = len(parts)
                regions += parts
            else:
                regions.append(region)
        return Plan(tuple(regions), plan.fallbacks), made

    def renewed(self, plan: Plan, indices: Collection[int]) -> Plan:
        """The plan with these regions as new ones, of the same nodes, since they will be other code."""
        regions = (self._make(r.nodes, self._parts[r.index]) if r.index in indices else r for r in plan.regions)
        return Plan(tuple(regions), plan.fallbacks)

    def trim(
        self, plan: Plan, failing: Mapping[int, Collection[int]], why: Mapping[int, str]
    ) -> tuple[Plan, frozenset[int]]:
        """The plan where regions have lost the nodes that only their outputs at the `failing` places need, and the
        indices of those regions. A few such nodes fall back; more of them, in one piece, are parts."""
        regions: list[Region] = []
        fallbacks: list[Fallback] = []
        trimmed: set[int] = set()
        for region in plan.regions:
            off = _only_for(region, failing.get(region.index, ()))
            if not off or len(off) == len(region.nodes):
                regions.append(region)
                continue
            trimmed.add(region.index)
            regions.append(self._make(_without(region.nodes, off), self._parts[region.index]))
            for piece in _pieces(off):
                if len(piece) > FEW:
                    regions += self._cut_piece(piece, self._parts[region.index])
                else:
                    fallbacks += [Fallback(node, why[region.index]) for node in piece]
        return Plan(tuple(regions), (*plan.fallbacks, *fallbacks)), frozenset(trimmed)

    def _cut(self, region: Region) -> list[Region]:
        return self._quarters(region.nodes, self._parts[region.index])

    def _cut_piece(self, nodes: Sequence[ir.Node], of: _Part) -> list[Region]:
        self._branches += 1
        return self._quarters(tuple(nodes), replace(of, start=0, branch=self._branches))

    def _quarters(self, nodes: tuple[ir.Node, ...], where: _Part) -> list[Region]:
        size = -(-len(nodes) // WAYS)
        starts = range(0, len(nodes), size)
        return [self._make(nodes[s : s + size], replace(where, start=where.start + s)) for s in starts]

    def _make(self, nodes: tuple[ir.Node, ...], part: _Part) -> Region:
        index, self._next = self._next, self._next + 1
        self._parts[index] = part
        return make_region(index, nodes, part.backend)

    def rejoin(self, plan: Plan, apart: Collection[ir.Node] = ()) -> tuple[Plan, frozenset[int]]:
        """The plan with neighbouring parts of one region as one again, and the indices of those joined regions. Parts
        that begin with a node of `apart` are not joined to the one before them."""
        regions: list[Region] = []
        for region in sorted(plan.regions, key=lambda r: self._parts[r.index].order):
            before = regions[-1] if regions else None
            if before is not None and region.nodes[0] not in apart and self._adjacent(before, region):
                regions[-1] = self._make(before.nodes + region.nodes, self._parts[before.index])
            else:
                regions.append(region)
        old = {region.index for region in plan.regions}
        return Plan(tuple(regions), plan.fallbacks), frozenset(r.index for r in regions if r.index not in old)

    def nodes_by_origin(self, plan: Plan) -> dict[int, int]:
        """How many nodes of each captured region are still in regions."""
        counted: dict[int, int] = {}
        for region in plan.regions:
            origin = self._parts[region.index].origin
            counted[origin] = counted.get(origin, 0) + len(region.nodes)
        return counted

    def _adjacent(self, before: Region, region: Region) -> bool:
        one, two = self._parts[before.index], self._parts[region.index]
        return replace(one, start=one.start + len(before.nodes)) == two


def _only_for(region: Region, failing: Collection[int]) -> tuple[ir.Node, ...]:
    """The nodes that no output needs but those at the `failing` places."""
    if not failing:
        return ()
    inside, needed = set(region.nodes), set[ir.Node]()
    waiting = [value.producer() for place, value in enumerate(region.outputs) if place not in failing]
    while waiting:
        node = waiting.pop()
        if node is None or node not in inside or node in needed:
            continue
        needed.add(node)
        waiting += [value.producer() for value in node.inputs if value is not None]
    return _without(region.nodes, needed)


def _without(nodes: Iterable[ir.Node], gone: Collection[ir.Node]) -> tuple[ir.Node, ...]:
    gone = set(gone)
    return tuple(node for node in nodes if node not in gone)


def _pieces(nodes: Sequence[ir.Node]) -> list[list[ir.Node]]:
    """Nodes in topological order, by what hangs together, each piece in that order."""
    piece_of: dict[ir.Node, list[ir.Node]] = {}
    for node in nodes:
        makers = [value.producer() for value in node.inputs if value is not None]
        joined: dict[int, list[ir.Node]] = {id(piece_of[m]): piece_of[m] for m in makers if m in piece_of}
        piece = [*(one for piece in joined.values() for one in piece), node]
        piece_of.update((one, piece) for one in piece)
    place = {node: at for at, node in enumerate(nodes)}
    distinct = {id(piece): piece for piece in piece_of.values()}
    return [sorted(piece, key=place.__getitem__) for piece in distinct.values()]
