"""NaN and infinities are fed only where the answer to them is defined."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from smelt.check.region_check import RegionCheck
from smelt.check.special_values import defined_outputs
from smelt.runtime import session_for


def model_of(nodes, outputs) -> ir.Model:
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]),
        helper.make_tensor_value_info("i", 7, ["n"]),
    ]
    infos = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs]
    return ir.from_proto(helper.make_model(helper.make_graph(nodes, "g", inputs, infos)))


def test_floats_as_integers_sorts_and_quantizations_are_undefined_and_all_below_them():
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Cast", ["x"], ["c"], to=TensorProto.INT32),
        helper.make_node("Cast", ["c"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("DynamicQuantizeLinear", ["e"], ["q", "s", "z"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
    ]
    outputs = [("e", TensorProto.FLOAT), ("f", TensorProto.FLOAT), ("d", TensorProto.FLOAT)]
    assert defined_outputs(model_of(nodes, outputs)) == [0]


def test_integers_that_are_cast_to_floats_are_defined():
    nodes = [
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["x"], ["b"], to=TensorProto.BOOL),
        helper.make_node("Where", ["b", "f", "x"], ["y"]),
    ]
    assert defined_outputs(model_of(nodes, [("y", TensorProto.FLOAT), ("i", TensorProto.INT64)])) == [0]


@pytest.mark.parametrize(("op", "right"), [("ReduceMax", True), ("ReduceMean", False)])
def test_stock_does_not_tell_where_it_drops_nan(
    op: str, right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a reference there is nothing to hold such a region against; any other is held against stock."""
    nodes = [helper.make_node(op, ["i0"], ["y"], keepdims=0, axes=[1])]
    ends = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("i0", [40, 70]), ("y", None))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "plain.onnx")
    x = np.random.default_rng(0).standard_normal((40, 70)).astype(np.float32)
    stock = session_for(tmp_path / "plain.onnx").run(None, {"i0": x})

    def spoiled(one: object, level: str, inputs: list[np.ndarray]) -> list[np.ndarray]:
        return stock if np.isfinite(inputs[0]).all() else [np.full_like(stock[0], np.nan)]

    monkeypatch.setattr("smelt.check.region_check._OneRegion._run", spoiled)
    region = {"index": 0, "inputs": ["x"], "plain_inputs": ["x"], "outputs": ["y"], "op_types": [op], "twin": False,
              "plain": "plain.onnx", "defined": [0]}  # fmt: skip
    job = {"threads": 1, "without_reference": [0]}
    check = RegionCheck(job, tmp_path, {"v2": tmp_path}, lambda **told: None)
    assert (not check(region, {"x": x, "y": stock[0]}).comparison.problem) is right
