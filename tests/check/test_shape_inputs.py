"""Inputs that shape other tensors get contents that nodes accept."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from smelt.check.shape_inputs import shape_like


def contents(op: str, data: list, count: int, out: list | None, place: int = 1, **attributes) -> list[int] | None:
    """What is chosen for the input at `place` of one node."""
    names = ["x", *(f"i{k}" for k in range(1, place)), "s"] if place else ["s"]
    node = helper.make_node(op, names, ["y"], **attributes)
    inputs = [helper.make_tensor_value_info("s", TensorProto.INT64, [count])]
    inputs += [helper.make_tensor_value_info("x", TensorProto.FLOAT, data)] if place else []
    inputs += [helper.make_tensor_value_info(n, TensorProto.INT64, [count]) for n in names if n.startswith("i")]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, out)
    graph = helper.make_graph([node], "g", inputs, [output])
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    return shape_like(model.graph.inputs[0], count)


@pytest.mark.parametrize(
    ("op", "data", "count", "out", "expected"),
    [
        ("Reshape", [2, 6], 3, [3, 2, 2], [3, 2, 2]),
        ("Reshape", ["n", 6], 2, None, [0, -1]),
        ("Reshape", ["n", 6], 3, None, [0, 0, 1]),
        ("Expand", [3, 1], 2, [3, 4], [3, 4]),
        ("Expand", ["n", 1], 2, None, [1, 1]),
        ("Tile", [2, 3], 2, [4, 9], [2, 3]),
        ("Pad", [2, 3], 4, [5, 3], [1, 0, 2, 0]),
        ("ReduceSum", [3, 2, 4], 1, [3, 1, 4], [1]),
        ("ReduceSum", [3, 2, 4], 2, [4], [0, 1]),
        ("Squeeze", [1, 3, 1, 5], 1, [1, 3, 5], [2]),
        ("Unsqueeze", [3, 4], 1, [3, 1, 4], [1]),
    ],
)
def test_declared_shapes_decide_where_there_are_any(op, data, count, out, expected):
    assert contents(op, data, count, out) == expected


def test_slices_are_harmless():
    assert contents("Slice", ["n", 3], 2, None, place=1) == [0, 0]
    assert contents("Slice", ["n", 3], 2, None, place=3) == [0, 1]


def test_a_value_that_shapes_nothing_is_left_alone():
    assert contents("Gather", ["n", 3], 2, None) is None
