from __future__ import annotations

import onnx
import onnx_ir as ir
from tests.report.conftest import chain_model, plan_of

from smelt.ir.load import load_model
from smelt.ir.records import Plan
from smelt.report import count_ops, draw


def test_each_node_has_its_region_or_its_reason():
    model = chain_model(("a", "b", "c", "d"))
    picture = draw(model, plan_of(model), count_ops(model))
    assert [node.region for node in picture.nodes] == [0, 0, -1, 1]
    assert [bool(node.reason) for node in picture.nodes] == [False, False, True, False]
    assert [node.sources for node in picture.nodes] == [(), (0,), (1,), (2,)]
    assert picture.original == {"Relu": 4}


def test_a_plan_of_a_copy_fits_even_after_its_nodes_were_taken_apart():
    model, copy = chain_model(("a", "b", "c")), chain_model(("a", "b", "c"))
    plan = plan_of(copy)
    copy.graph.outputs.clear()
    copy.graph.remove(list(copy.graph), safe=True)
    picture = draw(model, plan, {})
    assert [node.region for node in picture.nodes] == [0, 0, -1]
    assert picture.nodes[1].inputs == ("v1",)


def test_nodes_without_names_are_told_apart():
    model = chain_model(("", "", ""))
    assert [node.region for node in draw(model, plan_of(model), {}).nodes] == [0, 0, -1]


def test_bodies_come_after_what_they_capture_and_before_their_holder(nested_model: onnx.ModelProto):
    picture = draw(load_model(nested_model), Plan((), ()), {})
    places = {node.op: place for place, node in enumerate(picture.nodes)}
    assert set(places) == {"Neg", "Abs", "Relu", "If"}
    assert all(source < place for place, node in enumerate(picture.nodes) for source in node.sources)
    assert set(picture.nodes[places["If"]].sources) == {places["Neg"], places["Abs"], places["Relu"]}
    assert [picture.nodes[places[op]].nested for op in ("Abs", "Neg")] == [True, False]


def test_ops_of_other_domains_carry_their_domain():
    model = chain_model(("a",))
    next(iter(model.graph)).domain = "com.microsoft"
    assert count_ops(model) == {"com.microsoft::Relu": 1}


def test_long_chains_need_no_recursion_and_little_time():
    model = chain_model(tuple(f"n{i}" for i in range(20_000)))
    assert len(draw(model, Plan((), ()), {}).nodes) == 20_000


def test_no_tensor_content_is_kept():
    model = chain_model(("a",))
    secret = ir.Value(name="w", const_value=ir.tensor([12345.5, 54321.5], name="w"))
    model.graph.initializers["w"] = secret
    next(iter(model.graph)).replace_input_with(0, secret)
    assert "12345" not in str(draw(model, Plan((), ()), {}))
