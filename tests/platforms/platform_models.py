"""The two models that travel: a small encoder, and element-wise chains alone.

Input: nothing. Output: ModelProtos with free batch and sequence, and their feeds. Invariant: seeded, so that every
machine and every process makes the same models and feeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HIDDEN, HEADS, LAYERS, WORDS, PLACES, WIDE = 64, 4, 2, 100, 64, 256
F, I64 = TensorProto.FLOAT, TensorProto.INT64


class _Graph:
    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(7)

    def op(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], name=f"n{len(self.nodes)}", **attributes))
        return name

    def constant(self, array: Any, dtype: type = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def weight(self, *shape: int, scale: float = 0.2) -> str:
        return self.constant(self.random.normal(0, scale, shape))

    def dense(self, x: str, inner: int, outer: int) -> str:
        return self.op("Add", self.op("MatMul", x, self.weight(inner, outer)), self.weight(outer))

    def normalized(self, x: str) -> str:
        scale = self.constant(self.random.normal(1, 0.1, HIDDEN))
        return self.op("LayerNormalization", x, scale, self.weight(HIDDEN), axis=-1, epsilon=1e-5)

    def gelu(self, x: str) -> str:
        one = self.op("Add", self.op("Erf", self.op("Div", x, self.constant(2**0.5))), self.constant(1.0))
        return self.op("Mul", self.op("Mul", x, one), self.constant(0.5))

    def heads(self, x: str, perm: list[int]) -> str:
        split = self.op("Reshape", x, self.constant([0, 0, HEADS, HIDDEN // HEADS], np.int64))
        return self.op("Transpose", split, perm=perm)

    def attention(self, x: str, mask: str) -> str:
        q, k, v = (self.dense(x, HIDDEN, HIDDEN) for _ in range(3))
        scores = self.op("MatMul", self.heads(q, [0, 2, 1, 3]), self.heads(k, [0, 2, 3, 1]))
        scaled = self.op("Div", scores, self.constant((HIDDEN // HEADS) ** 0.5))
        shares = self.op("Softmax", self.op("Add", scaled, mask), axis=-1)
        mixed = self.op("Transpose", self.op("MatMul", shares, self.heads(v, [0, 2, 1, 3])), perm=[0, 2, 1, 3])
        joined = self.op("Reshape", mixed, self.constant([0, 0, HIDDEN], np.int64))
        return self.dense(joined, HIDDEN, HIDDEN)

    def layer(self, x: str, mask: str) -> str:
        x = self.normalized(self.op("Add", x, self.attention(x, mask)))
        wide = self.gelu(self.dense(x, HIDDEN, WIDE))
        return self.normalized(self.op("Add", x, self.dense(wide, WIDE, HIDDEN)))

    def model(self, inputs: dict[str, tuple[int, list[Any]]], output: str, dims: list[Any]) -> onnx.ModelProto:
        self.nodes.append(helper.make_node("Identity", [output], ["y"], name="last"))
        declared = [helper.make_tensor_value_info(name, *what) for name, what in inputs.items()]
        out = helper.make_tensor_value_info("y", F, dims)
        graph = helper.make_graph(self.nodes, "g", declared, [out], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def encoder() -> onnx.ModelProto:
    g = _Graph()
    words = g.op("Gather", g.weight(WORDS, HIDDEN, scale=1.0), "ids", axis=0)
    length = g.op("Gather", g.op("Shape", "ids"), g.constant(1, np.int64), axis=0)
    places = g.op("Range", g.constant(0, np.int64), length, g.constant(1, np.int64))
    x = g.normalized(g.op("Add", words, g.op("Gather", g.weight(PLACES, HIDDEN, scale=1.0), places, axis=0)))
    seen = g.op("Cast", g.op("Unsqueeze", "mask", g.constant([1, 2], np.int64)), to=F)
    hidden = g.op("Mul", g.op("Sub", g.constant(1.0), seen), g.constant(-1e4))
    for _ in range(LAYERS):
        x = g.layer(x, hidden)
    dims = ["batch", "sequence"]
    return g.model({"ids": (I64, dims), "mask": (I64, dims)}, x, [*dims, HIDDEN])


def micro() -> onnx.ModelProto:
    g = _Graph()
    x = "x"
    for op in ("Exp", "Tanh", "Sigmoid", "Erf", "Softplus", "Sin"):
        x = g.op("Add", g.op(op, g.op("Mul", x, g.constant(0.7))), g.weight(1, 33))
    x = g.op("Div", x, g.op("ReduceSum", g.op("Abs", x), g.constant([-1], np.int64), keepdims=1))
    return g.model({"x": (F, ["rows", 33])}, x, ["rows", 33])


def feeds(name: str) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(3)
    if name == "micro":
        return [{"x": random.normal(0, 1, (rows, 33)).astype(np.float32)} for rows in (1, 0, 70)]
    made = []
    for batch, sequence in ((1, 1), (2, 17), (3, 33)):
        mask = (np.arange(sequence) < random.integers(1, sequence + 1, (batch, 1))).astype(np.int64)
        made.append({"ids": random.integers(0, WORDS, (batch, sequence)), "mask": mask})
    return made
