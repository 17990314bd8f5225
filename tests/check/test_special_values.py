"""NaN and infinities are fed only where the answer to them is defined."""

from __future__ import annotations

import onnx_ir as ir
from onnx import TensorProto, helper

from smelt.check.special_values import defined_outputs


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
