"""Parts of a model, and the search for the smallest one that fails."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from smelt.check.cut import Cut, Cutter
from smelt.check.reduce import reduce_model
from smelt.ir.load import load_model
from smelt.ir.save import save_model


def chain(count: int, special: dict[int, str]) -> ir.Model:
    nodes = [helper.make_node(special.get(i, "Neg"), [f"v{i}"], [f"v{i + 1}"], name=f"n{i}") for i in range(count)]
    x = helper.make_tensor_value_info("v0", TensorProto.FLOAT, ["n", 4])
    y = helper.make_tensor_value_info(f"v{count}", TensorProto.FLOAT, ["n", 4])
    graph = helper.make_graph(nodes, "chain", [x], [y])
    return load_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))


def fails_with(*ops: str):
    def probe(cut: Cut) -> str:
        return "bad" if set(ops) <= {node.op_type for node in cut.model.graph} else ""

    return probe


def test_the_node_at_fault_is_found_in_few_tries() -> None:
    found = reduce_model(Cutter(chain(300, {211: "Tanh"}), {}), fails_with("Tanh"), lambda *_: None)
    assert found is not None and found.places == (211,) and found.complete and found.probes < 30


def test_nodes_that_fail_only_together_are_kept_and_others_between_them_go() -> None:
    found = reduce_model(Cutter(chain(120, {7: "Sin", 90: "Tanh"}), {}), fails_with("Tanh", "Sin"), lambda *_: None)
    assert found is not None and found.places == (7, 90)
    assert [v.name for v in found.cut.model.graph.inputs] == ["v7", "v90"]
    assert [node.name for node in found.cut.model.graph] == ["n7", "n90"]


def test_the_search_ends_at_its_limit_with_something_that_fails() -> None:
    found = reduce_model(Cutter(chain(120, {7: "Sin", 90: "Tanh"}), {}), fails_with("Tanh", "Sin"), lambda *_: None, 5)
    assert found is not None and not found.complete and {7, 90} <= set(found.places)


def test_a_model_that_does_not_fail_is_not_reduced() -> None:
    assert reduce_model(Cutter(chain(10, {}), {}), fails_with("Tanh"), lambda *_: None) is None


def test_another_failure_is_not_taken_for_the_same() -> None:
    def probe(cut: Cut) -> str:
        ops = {node.op_type for node in cut.model.graph}
        return "first" if {"Tanh", "Sin"} <= ops else "second" if "Tanh" in ops else ""

    found = reduce_model(Cutter(chain(20, {3: "Sin", 9: "Tanh"}), {}), probe, lambda *_: None)
    assert found is not None and found.places == (3, 9) and found.failure == "first"


@pytest.fixture
def branching() -> onnx.ModelProto:
    """A weight, two outputs, and a branch that reads an outer value."""
    weight = numpy_helper.from_array(np.arange(16, dtype=np.float32).reshape(4, 4), "w")
    out = helper.make_tensor_value_info("t", TensorProto.FLOAT, ["n", 4])
    then = helper.make_graph([helper.make_node("Add", ["a", "w"], ["t"])], "then", [], [out])
    other = helper.make_graph([helper.make_node("Neg", ["a"], ["t"])], "else", [], [out])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("If", ["c"], ["d"], then_branch=then, else_branch=other),
        helper.make_node("Add", ["b", "d"], ["y"]),
    ]
    x, c = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4]), helper.make_tensor_value_info("c", 9, [])
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in ("b", "y")]
    graph = helper.make_graph(nodes, "g", [x, c], outputs, [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("places", [(0,), (2,), (2, 3), (1, 3), (0, 1, 2, 3), (0, 3)])
def test_a_part_is_a_model_that_runs_on_its_feeds_as_in_the_whole(branching, places, tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((4, 4), np.float32)
    a = x @ np.arange(16, dtype=np.float32).reshape(4, 4)
    d = a + np.arange(16, dtype=np.float32).reshape(4, 4)
    values = {"x": x, "c": np.array(True), "a": a, "b": np.exp(a), "d": d, "y": np.exp(a) + d}
    cut = Cutter(load_model(branching), values).cut(places)
    assert cut is not None and cut.feeds is not None
    saved = save_model(cut.model, tmp_path / "part.onnx")
    onnx.checker.check_model(onnx.load(saved.model_path))
    session = onnxruntime.InferenceSession(str(saved.model_path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    assert names
    for name, got in zip(names, session.run(None, cut.feeds), strict=True):
        np.testing.assert_allclose(got, values[name], rtol=1e-5)
