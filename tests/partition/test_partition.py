"""Partition: regions are acyclic, convex and complete on any graph, and stay so after rewriting."""

from __future__ import annotations

import time

import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smelt.base.dtype import BY_NAME
from smelt.ir.backend import Capabilities
from smelt.ir.records import Claim, Plan, Region
from smelt.ir.walk import model_nodes
from smelt.partition import capture, rewrite


class NameBackend:
    """Claims nodes whose op type is Yes."""

    name = "names"
    capabilities = Capabilities(frozenset(BY_NAME))

    def claims(self, node: ir.Node) -> Claim:
        return Claim(True) if node.op_type == "Yes" else Claim(False, "says no")

    def cost(self, region: Region) -> Claim:
        return Claim(len(region.nodes) > 1, "too small")


def make_model(edges: list[list[int]], claimed: list[bool], outputs: list[int]) -> ir.Model:
    """A graph whose node i takes the results of nodes edges[i], or the graph input."""
    source = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([4]))
    nodes: list[ir.Node] = []
    for index, sources in enumerate(edges):
        inputs = [nodes[s].outputs[0] for s in sources] or [source]
        value = ir.Value(name=f"v{index}", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([4]))
        nodes.append(ir.Node("", "Yes" if claimed[index] else "No", inputs, outputs=[value], name=f"n{index}"))
    graph = ir.Graph([source], [nodes[o].outputs[0] for o in outputs], nodes=nodes, name="g", opset_imports={"": 20})
    return ir.Model(graph, ir_version=9)


@st.composite
def dags(draw: st.DrawFn) -> ir.Model:
    count = draw(st.integers(1, 40))
    edges = [draw(st.lists(st.integers(0, i - 1), max_size=3)) if i else [] for i in range(count)]
    claimed = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    outputs = draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=3, unique=True))
    return make_model(edges, claimed, outputs)


def assert_topological(graph: ir.Graph) -> None:
    seen: set[ir.Node] = set()
    for node in graph:
        for value in node.inputs:
            producer = value.producer() if value is not None else None
            assert producer is None or producer in seen, f"{node.name} comes before its input"
        seen.add(node)


def assert_convex(model: ir.Model, region: Region) -> None:
    """No path leaves the region and returns to it."""
    inside = set(region.nodes)
    tainted: set[ir.Node] = set()
    for node in model.graph:
        touched = any(p in tainted or (p in inside and node not in inside) for p in node.predecessors())
        if node in inside:
            assert not any(p in tainted for p in node.predecessors())
        elif touched:
            tainted.add(node)


@settings(max_examples=300, deadline=None)
@given(dags())
def test_every_node_is_in_one_place_and_regions_are_convex(model: ir.Model) -> None:
    plan = capture(model, [NameBackend()], force=True)
    placed = [node for region in plan.regions for node in region.nodes] + [fallback.node for fallback in plan.fallbacks]
    assert sorted(map(id, placed)) == sorted(map(id, model_nodes(model)))
    assert all(node.op_type == "Yes" for region in plan.regions for node in region.nodes)
    assert [fallback.reason for fallback in plan.fallbacks] == ["says no"] * len(plan.fallbacks)
    for region in plan.regions:
        assert_convex(model, region)


@settings(max_examples=300, deadline=None)
@given(dags(), st.data())
def test_rewritten_graphs_are_in_topological_order_for_any_subset_of_regions(
    model: ir.Model, data: st.DataObject
) -> None:
    plan = capture(model, [NameBackend()], force=True)
    kept = tuple(region for region in plan.regions if data.draw(st.booleans()))
    outputs = [value.name for value in model.graph.outputs]
    before = len(model.graph)
    rewrite(model, Plan(kept, ()), "smelt.t", {region.index: f"r{region.index}" for region in kept})
    assert_topological(model.graph)
    assert [value.name for value in model.graph.outputs] == outputs
    assert len(model.graph) == before - sum(len(region.nodes) - 1 for region in kept)
    alive = set(model.graph)
    for node in model.graph:
        for value in node.inputs:
            assert value is not None
            assert value.producer() is None or value.producer() in alive


@settings(max_examples=200, deadline=None)
@given(dags())
def test_region_borders_hold_exactly_what_crosses_them(model: ir.Model) -> None:
    for region in capture(model, [NameBackend()], force=True).regions:
        inside = set(region.nodes)
        used = {v for node in region.nodes for v in node.inputs if v is not None and v.producer() not in inside}
        assert set(region.inputs) == used and len(region.inputs) == len(used)
        for node in region.nodes:
            for value in node.outputs:
                crosses = value.is_graph_output() or any(user not in inside for user in value.consumers())
                assert (value in region.outputs) == crosses


@settings(max_examples=100, deadline=None)
@given(dags())
def test_claimed_neighbours_are_apart_only_when_joining_them_makes_a_cycle_or_a_level_conflict(model: ir.Model) -> None:
    """With every node claimed nothing can conflict: regions are the connected parts of the graph."""
    for node in model.graph:
        node.op_type = "Yes"
    regions = capture(model, [NameBackend()], force=True).regions
    where = {node: region.index for region in regions for node in region.nodes}
    for node in model.graph:
        assert all(where[p] == where[node] for p in node.predecessors())


def test_an_early_node_joins_its_later_consumer() -> None:
    # n0 (yes) and n1 (no) both feed n2 (yes): n0 waits for n2's region.
    model = make_model([[], [], [0, 1]], [True, False, True], [2])
    (region,) = capture(model, [NameBackend()], force=True).regions
    assert [node.name for node in region.nodes] == ["n0", "n2"]


def test_a_node_needed_by_an_outside_consumer_stays_early() -> None:
    # n0 feeds n1 (no) which feeds n2: joining n0 and n2 would be a cycle.
    model = make_model([[], [0], [0, 1]], [True, False, True], [2])
    regions = capture(model, [NameBackend()], force=True).regions
    assert [[node.name for node in region.nodes] for region in regions] == [["n0"], ["n2"]]


def test_worth_and_cost_refuse_with_a_reason_unless_forced() -> None:
    model = make_model([[], [0]], [True, False], [1])
    plan = capture(model, [NameBackend()])
    assert plan.regions == ()
    assert plan.fallbacks[0].reason.startswith("alone")
    assert len(capture(model, [NameBackend()], force=True).regions) == 1


@pytest.mark.parametrize(
    ("select", "exclude", "taken"), [(["n[01]"], [], 2), (["Yes"], ["n1"], 2), (["No"], [], 0), ([], ["::Y*"], 0)]
)
def test_patterns_choose_by_name_and_op_type(select: list[str], exclude: list[str], taken: int) -> None:
    model = make_model([[], [0], [1]], [True, True, True], [2])
    plan = capture(model, [NameBackend()], select=select, exclude=exclude, force=True)
    assert sum(len(region.nodes) for region in plan.regions) == taken
    assert all(fallback.reason for fallback in plan.fallbacks)


def nested_model() -> ir.Model:
    """x -> a -> If(cond){ b = Yes(a); c = Yes(b) } and d = Yes(a)."""
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([4]))
    cond = ir.Value(name="cond", type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))
    a = ir.Node("", "Yes", [x], outputs=[ir.Value(name="a")], name="a")
    bodies: list[ir.Attr] = []
    for which in ("then_branch", "else_branch"):
        b = ir.Node("", "Yes", [a.outputs[0]], outputs=[ir.Value(name=f"b{which}")], name=f"b{which}")
        c = ir.Node("", "Yes", [b.outputs[0]], outputs=[ir.Value(name=f"c{which}")], name=f"c{which}")
        bodies.append(ir.AttrGraph(which, ir.Graph([], [c.outputs[0]], nodes=[b, c], name=which)))
    branch = ir.Node("", "If", [cond], bodies, outputs=[ir.Value(name="i")], name="i")
    d = ir.Node("", "Yes", [a.outputs[0], branch.outputs[0]], outputs=[ir.Value(name="d")], name="d")
    graph = ir.Graph([x, cond], [d.outputs[0]], nodes=[a, branch, d], name="g", opset_imports={"": 20})
    return ir.Model(graph, ir_version=9)


def test_bodies_are_partitioned_on_their_own_and_captures_become_inputs() -> None:
    model = nested_model()
    plan = capture(model, [NameBackend()], force=True)
    names = [[node.name for node in region.nodes] for region in plan.regions]
    # d uses a and the If, which captures a: joining a and d would be a cycle through the If.
    assert names == [["a"], ["d"], ["bthen_branch", "cthen_branch"], ["belse_branch", "celse_branch"]]
    assert [value.name for value in plan.regions[2].inputs] == ["a"]
    rewrite(model, plan, "smelt.t", ["r0", "r1", "r2", "r2"])
    assert_topological(model.graph)
    assert [node.op_type for node in model.graph] == ["r0", "If", "r1"]
    body = model.graph[1].attributes["then_branch"].as_graph()
    assert [node.op_type for node in body] == ["r2"]
    assert body[0].inputs[0] is model.graph[0].outputs[0]
    assert body.outputs[0].name == "cthen_branch"
    assert model.opset_imports["smelt.t"] == 1


def test_replaced_values_keep_name_type_and_shape() -> None:
    model = make_model([[], [0], [1]], [True, True, False], [1, 2])
    rewrite(model, capture(model, [NameBackend()], force=True), "smelt.t", ["r0"])
    value = model.graph.outputs[0]
    assert (value.name, value.dtype, value.shape) == ("v1", ir.DataType.FLOAT, ir.Shape([4]))
    assert value.producer() is model.graph[0]


@pytest.mark.parametrize("count", [20_000, pytest.param(100_000, marks=pytest.mark.full)])
@pytest.mark.parametrize("alternate", [False, True])
def test_a_long_chain_is_partitioned_without_recursion(alternate: bool, count: int) -> None:
    model = make_model(
        [[i - 1] if i else [] for i in range(count)], [not alternate or i % 3 > 0 for i in range(count)], [count - 1]
    )
    plan = capture(model, [NameBackend()], force=True)
    assert len(plan.regions) == (-(-(count - 1) // 3) if alternate else 1)
    rewrite(model, plan, "smelt.t", {region.index: "r0" for region in plan.regions})
    assert_topological(model.graph)


def test_20000_nodes_with_wide_fan_out_take_less_than_two_seconds() -> None:
    count = 20_000
    edges = [sorted({i - 1, i // 2, 0, max(0, i - 7)} - {i}) if i else [] for i in range(count)]
    model = make_model(edges, [i % 5 > 0 for i in range(count)], [count - 1])
    start = time.process_time()
    plan = capture(model, [NameBackend()], force=True)
    seconds = time.process_time() - start
    assert plan.regions
    assert seconds < 2.0, f"{seconds:.2f} s"
