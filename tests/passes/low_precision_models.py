"""Small float32 networks that a lower precision is asked for, and how near two answers are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]


def _model(
    nodes: list[onnx.NodeProto], x: list[int | str], y: list[int | str], weights: Mapping[str, Array]
) -> onnx.ModelProto:
    held = [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def mlp(width: int = 256) -> onnx.ModelProto:
    """Gemm, MatMul with a bias of its own, MatMul."""
    rng = np.random.default_rng(16)
    weights = {f"w{i}": rng.standard_normal((width, width)) / np.sqrt(width) for i in range(3)}
    weights |= {f"b{i}": rng.standard_normal(width) / 4 for i in range(2)}
    nodes = [
        helper.make_node("Gemm", ["x", "w0", "b0"], ["g"], transB=1, name="first"),
        helper.make_node("Relu", ["g"], ["r"]),
        helper.make_node("MatMul", ["r", "w1"], ["m"], name="second"),
        helper.make_node("Add", ["m", "b1"], ["a"]),
        helper.make_node("Relu", ["a"], ["s"]),
        helper.make_node("MatMul", ["s", "w2"], ["y"], name="third"),
    ]
    return _model(nodes, ["rows", width], ["rows", width], weights)


def attention(width: int = 64, heads: int = 4) -> onnx.ModelProto:
    """Queries, keys and values by MatMul, the result by Gemm over all tokens."""
    rng = np.random.default_rng(17)
    weights = {name: rng.standard_normal((width, width)) / np.sqrt(width) for name in ("wq", "wk", "wv", "wo")}
    weights |= {"bo": rng.standard_normal(width) / 4}
    nodes: list[onnx.NodeProto] = []
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            helper.make_node("MatMul", ["x", f"w{name}"], [f"{name}0"], name=f"to_{name}"),
            helper.make_node("Reshape", [f"{name}0", "split"], [f"{name}1"]),
            helper.make_node("Transpose", [f"{name}1"], [name], perm=order),
        ]
    nodes += [
        helper.make_node("MatMul", ["q", "k"], ["scores"], name="scores"),
        helper.make_node("Mul", ["scores", "factor"], ["scaled"]),
        helper.make_node("Softmax", ["scaled"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["o"], name="mixed"),
        helper.make_node("Transpose", ["o"], ["merged"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["merged", "flat"], ["rows"]),
        helper.make_node("Gemm", ["rows", "wo", "bo"], ["g"], name="result"),
        helper.make_node("Reshape", ["g", "whole"], ["z"]),
        helper.make_node("Add", ["z", "x"], ["y"]),
    ]
    model = _model(nodes, ["batch", 9, width], ["batch", 9, width], weights)
    sizes = {"split": [0, 9, heads, width // heads], "flat": [-1, width], "whole": [-1, 9, width]}
    model.graph.initializer.extend(numpy_helper.from_array(np.array(v, np.int64), n) for n, v in sizes.items())
    factor = np.array((width // heads) ** -0.5, np.float32)
    model.graph.initializer.append(numpy_helper.from_array(factor, "factor"))
    return model


def conv_net() -> onnx.ModelProto:
    """3x3, depthwise, 1x1, a mean over the image, Gemm."""
    rng = np.random.default_rng(19)
    shapes = {"w0": (32, 3, 3, 3), "w1": (32, 1, 3, 3), "w2": (64, 32, 1, 1), "w3": (64, 64, 3, 3), "w4": (40, 64)}
    weights = {name: rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:])) for name, shape in shapes.items()}
    weights |= {"b0": rng.standard_normal(32) / 4, "b4": rng.standard_normal(40) / 4}
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1, 1, 1, 1], strides=[2, 2], name="stem"),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], pads=[1, 1, 1, 1], group=32, name="depthwise"),
        helper.make_node("Conv", ["c1", "w2"], ["c2"], name="pointwise"),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("Conv", ["r2", "w3"], ["c3"], pads=[1, 1, 1, 1], name="dense"),
        helper.make_node("GlobalAveragePool", ["c3"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w4", "b4"], ["y"], transB=1, name="head"),
    ]
    return _model(nodes, ["batch", 3, 24, 24], ["batch", 40], weights)


def product(weights: Array) -> onnx.ModelProto:
    """One MatMul."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    return _model(nodes, ["rows", weights.shape[0]], ["rows", weights.shape[1]], {"w": weights})


def nothing() -> onnx.ModelProto:
    """No weights at all."""
    return _model([helper.make_node("Relu", ["x"], ["y"])], ["rows", 64], ["rows", 64], {})


def odd_weights(kind: str) -> Array:
    """Weights (64, 96): all zero, all alike, or one column of zeros among others."""
    if kind == "zero":
        return np.zeros((64, 96), np.float32)
    if kind == "constant":
        return np.full((64, 96), 0.3, np.float32)
    weights = np.random.default_rng(18).standard_normal((64, 96)).astype(np.float32)
    weights[:, 5] = 0
    return weights


def stock(model: onnx.ModelProto, x: Array) -> Array:
    return np.asarray(onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0])


def decibels(wanted: Array, got: Array) -> float:
    """Signal to noise."""
    noise = float(np.square(wanted - got, dtype=np.float64).sum())
    return 10 * float(np.log10(np.square(wanted, dtype=np.float64).sum() / noise)) if noise else float("inf")


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
