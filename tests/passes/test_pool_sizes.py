"""Pools have as many windows in inferred shapes as in stock ONNX Runtime."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from smelt.passes.pool_sizes import infer_with_pools

IMAGES = (2, 7, 16)


def pools(opset: int) -> onnx.ModelProto:
    """Every combination twice: the second of each pair sees the first one's result."""
    nodes: list[onnx.NodeProto] = []
    for place, (n, kernel, stride, before, after, up) in enumerate(
        itertools.product(IMAGES, (1, 3, 5), (1, 2, 3), (0, 1), (0, 2), (0, 1))
    ):
        if max(before, after) >= kernel or n + before + after < kernel:
            continue
        window = {"kernel_shape": [kernel], "strides": [stride], "pads": [before, after], "ceil_mode": up}
        op = ("MaxPool", "AveragePool", "LpPool")[place % 3]
        nodes.append(helper.make_node(op, [f"x{n}"], [f"y{place}"], **window))
        again = {"kernel_shape": [1], "strides": [2], "ceil_mode": 1}
        nodes.append(helper.make_node("MaxPool", [f"y{place}"], [f"z{place}"], **again))
    inputs = [helper.make_tensor_value_info(f"x{n}", TensorProto.FLOAT, [1, 1, n]) for n in IMAGES]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for node in nodes for name in node.output]
    graph = helper.make_graph(nodes, "pools", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


@pytest.mark.parametrize("opset", [18, 22])
def test_windows_are_counted_as_stock_counts_them(opset: int) -> None:
    model = pools(opset)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results = session.run(None, {f"x{n}": np.ones((1, 1, n), np.float32) for n in IMAGES})
    inferred = [[d.dim_value for d in o.type.tensor_type.shape.dim] for o in infer_with_pools(model).graph.output]
    assert inferred == [list(result.shape) for result in results]


def test_what_is_not_known_is_left_alone() -> None:
    text = '<ir_version: 9, opset_import: ["" : 18]> g (float[1, 1, N] x) => (float[A, B, C] y) { y = '
    model = onnx.parser.parse_model(text + "MaxPool<kernel_shape = [1], strides = [2], ceil_mode = 1>(x) }")
    before = model.SerializeToString()
    infer_with_pools(model)
    assert model.SerializeToString() == before
