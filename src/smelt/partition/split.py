"""Regions that failed, in smaller parts: one bad node must not cost a whole region.

Input: a plan and the regions at fault. Output: a plan with parts of those regions in their place, and, once the bad
parts are known, a plan with the good ones joined again. Invariant: a part is a run of its region's topological order.
No path leads from a run to an earlier one, and none leaves a region and returns, so the contracted graph stays
acyclic. Parts have indices of their own, never used before.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import onnx_ir as ir

from smelt.ir.records import Plan, Region
from smelt.partition.capture import make_region

WAYS = 4
FEW = 4  # nodes that are not worth a search


@dataclass(frozen=True)
class _Part:
    """Where a region lies in the one that was captured."""

    origin: int
    start: int


class Splitter:
    """Knows where parts come from, from one round to the next."""

    def __init__(self, plan: Plan) -> None:
        self._parts = {region.index: _Part(region.index, 0) for region in plan.regions}
        self._next = 1 + max(self._parts, default=-1)

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
        return Plan(tuple(regions), plan.left), made

    def _cut(self, region: Region) -> list[Region]:
        where = self._parts[region.index]
        size = -(-len(region.nodes) // WAYS)
        starts = range(0, len(region.nodes), size)
        return [self._make(region.nodes[s : s + size], _Part(where.origin, where.start + s)) for s in starts]

    def _make(self, nodes: tuple[ir.Node, ...], part: _Part) -> Region:
        index, self._next = self._next, self._next + 1
        self._parts[index] = part
        return make_region(index, nodes)

    def rejoin(self, plan: Plan) -> tuple[Plan, frozenset[int]]:
        """The plan with neighbouring parts of one region as one again, and the indices of those joined regions."""
        regions: list[Region] = []
        for region in sorted(plan.regions, key=lambda r: (self._parts[r.index].origin, self._parts[r.index].start)):
            before = regions[-1] if regions else None
            if before is not None and self._adjacent(before, region):
                regions[-1] = self._make(before.nodes + region.nodes, self._parts[before.index])
            else:
                regions.append(region)
        old = {region.index for region in plan.regions}
        return Plan(tuple(regions), plan.left), frozenset(r.index for r in regions if r.index not in old)

    def nodes_by_origin(self, plan: Plan) -> dict[int, int]:
        """How many nodes of each captured region are still in regions."""
        counted: dict[int, int] = {}
        for region in plan.regions:
            origin = self._parts[region.index].origin
            counted[origin] = counted.get(origin, 0) + len(region.nodes)
        return counted

    def _adjacent(self, before: Region, region: Region) -> bool:
        one, two = self._parts[before.index], self._parts[region.index]
        return one.origin == two.origin and one.start + len(before.nodes) == two.start
