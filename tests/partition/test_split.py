"""Regions in parts: runs of the topological order, and joined again where nothing lies between."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from smelt.ir.records import Fallback, Plan
from smelt.partition import Splitter
from smelt.partition.capture import make_region


def chain(count: int) -> list[ir.Node]:
    value = ir.Value(name="x")
    nodes: list[ir.Node] = []
    for place in range(count):
        out = ir.Value(name=f"v{place}")
        nodes.append(ir.Node("", "Relu", [value], outputs=[out], name=f"n{place}"))
        value = out
    ir.Graph([nodes[0].inputs[0]], [value], nodes=nodes, name="chain", opset_imports={"": 17})
    return nodes


@pytest.fixture
def plan() -> Plan:
    nodes = chain(25)
    return Plan(
        (make_region(0, nodes[:20]), make_region(1, nodes[20:23])), (Fallback(nodes[23], "x"), Fallback(nodes[24], "x"))
    )


def names(plan: Plan) -> list[list[str]]:
    return [[node.name or "" for node in region.nodes] for region in plan.regions]


def test_parts_cover_the_region_in_order_with_the_values_at_their_borders(plan: Plan) -> None:
    parts, made = Splitter(plan).split(plan, {0})
    assert made == {0: 4}
    assert [name for part in names(parts)[:4] for name in part] == names(plan)[0]
    assert [r.index for r in parts.regions] == [2, 3, 4, 5, 1]
    assert [v.name for v in parts.regions[1].inputs] == ["v4"] and [v.name for v in parts.regions[1].outputs] == ["v9"]


def test_a_few_nodes_are_not_cut(plan: Plan) -> None:
    same, made = Splitter(plan).split(plan, {1})
    assert made == {} and same.regions == plan.regions


def test_neighbours_are_joined_again_around_a_part_that_fell_back(plan: Plan) -> None:
    splitter = Splitter(plan)
    parts, _ = splitter.split(plan, {0})
    finer, _ = splitter.split(parts, {3})
    kept = finer.without({finer.regions[2].index: "bad"})
    joined, new = splitter.rejoin(kept)
    assert names(joined) == [[f"n{i}" for i in range(7)], [f"n{i}" for i in range(9, 20)], ["n20", "n21", "n22"]]
    assert new == {joined.regions[0].index, joined.regions[1].index}
    assert not new & {r.index for r in (*plan.regions, *parts.regions, *finer.regions)}
    assert splitter.nodes_by_origin(joined) == {0: 18, 1: 3}
