"""Quantized forms that stay float32 between their steps: 16 bits, transposed convolutions, Pad and Resize."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import smelt

INNER: dict[str, tuple[list[str], dict[str, Any]]] = {
    "Conv": (["d", "w"], {}),
    "ConvTranspose": (["d", "t"], {"strides": [2, 2]}),
    "Pad": (["d", "pads"], {}),
    "Resize": (["d", "", "scales"], {"mode": "nearest"}),
}


def model_of(op: str, dtype: int, zero: int, step: float) -> onnx.ModelProto:
    rng = np.random.default_rng(6)
    held = {
        "s": np.float32(step), "out": np.float32(step * 8),
        "w": rng.standard_normal((8, 4, 3, 3)).astype(np.float32),
        "t": rng.standard_normal((4, 8, 3, 3)).astype(np.float32),
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64), "scales": np.array([1, 1, 2, 2], np.float32),
    }  # fmt: skip
    names, attrs = INNER[op]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node(op, names, ["c"], **attrs),
        helper.make_node("QuantizeLinear", ["c", "out", "z"], ["r"]),
        helper.make_node("DequantizeLinear", ["r", "out", "z"], ["y"]),
    ]
    used = {name for node in nodes for name in node.input}
    inits = [numpy_helper.from_array(np.asarray(a), n) for n, a in held.items() if n in used]
    inits.append(helper.make_tensor("z", dtype, [], [zero]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 6, 6])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], inits)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("op", INNER)
@pytest.mark.parametrize(
    ("dtype", "zero", "step"),
    [(TensorProto.UINT8, 128, 0.02), (TensorProto.UINT16, 30000, 1e-4), (TensorProto.INT16, 0, 1e-4)],
)
def test_each_is_in_kernels_and_no_more_than_a_step_off(op: str, dtype: int, zero: int, step: float) -> None:
    """Against stock without optimization: with it, 1.31 is a hundred steps off in 16 bits."""
    model = model_of(op, dtype, zero, step)
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    x = np.random.default_rng(7).standard_normal((1, 4, 6, 6)).astype(np.float32)
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString(), plain).run(None, {"x": x})
    with smelt.compile(model, force=True, timing=False) as compiled:
        assert not compiled.result.plan.fallbacks
        (made,) = compiled.run({"x": x})
    steps = np.rint((made - np.asarray(wanted)) / (8 * step))
    assert np.abs(steps).max() <= 1 and np.mean(steps != 0) < 0.02
