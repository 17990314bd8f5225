"""MaxPool of a quantized tensor: on bytes where both sides share scale and zero point, right everywhere."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import smelt


def _model(
    dtype: type, scale: float, zero: int, other: float, shape: tuple[int, ...], **window: object
) -> onnx.ModelProto:
    """An image in float32 that is quantized, pooled, and quantized with the scale `other`."""
    constants = [
        numpy_helper.from_array(value, name)
        for name, value in (("s", np.float32(scale)), ("t", np.float32(other)), ("z", dtype(zero)), ("w", dtype(zero)))
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("MaxPool", ["d"], ["m"], **window),
        helper.make_node("QuantizeLinear", ["m", "t", "w"], ["y"]),
    ]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        nodes, "pool", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", kind, None)], constants,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _check(model: onnx.ModelProto, shape: tuple[int, ...]) -> set[str]:
    """The forms of the kernels, once the bytes are stock's."""
    x = np.random.default_rng(0).uniform(-8, 8, shape).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    stock = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    with smelt.compile(model, force=True, verify=False, threads=1) as compiled:
        assert not compiled.result.plan.fallbacks
        np.testing.assert_array_equal(compiled.run({"x": x})[0], stock.run(None, {"x": x})[0])
        assert compiled.result.generated is not None
        return {k.form for entry in compiled.result.generated.source.entries for k in entry.kernels}


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_a_pool_of_what_was_restored_is_of_bytes(dtype: type) -> None:
    shape, zero = (2, 20, 11, 13), 101
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    on_bytes = _check(_model(dtype, 0.05, zero, 0.05, shape, **window), shape)
    other = _check(_model(dtype, 0.05, zero, 0.07, shape, **window), shape)
    in_float = _check(_model(dtype, -0.05, zero, 0.07, shape, **window), shape)
    assert "max pool" in in_float
    assert "max pool" not in on_bytes | other


@pytest.mark.parametrize(
    "window",
    [
        {"kernel_shape": [2, 3], "strides": [2, 2], "pads": [0, 2, 1, 1], "ceil_mode": 1},
        {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"},
        {"kernel_shape": [3, 3], "dilations": [2, 2], "pads": [1, 1, 1, 1]},
    ],
)
def test_windows_at_the_border_see_no_padding(window: dict[str, object]) -> None:
    shape = (1, 5, 8, 9)
    _check(_model(np.int8, 0.05, -3, 0.05, shape, **window), shape)


@pytest.mark.parametrize("scale", [-0.05, 1e-40])
def test_scales_that_turn_or_flatten_the_order_are_right(scale: float) -> None:
    shape = (1, 4, 6, 6)
    _check(_model(np.uint8, scale, 120, scale, shape, kernel_shape=[2, 2]), shape)
