"""Lowerings compose: a random chain of ops as one region, with known and with free sizes, equals the chain op by op."""

from __future__ import annotations

import random
from collections.abc import Callable

import cases
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

OPSET = 18
LARGEST = 400


class Chain:
    """A random graph over three inputs whose sizes broadcast, grown op by op under the reference's eyes."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        values = np.random.default_rng(seed)
        sizes = [self.rng.choice([1, 2, 3]) for _ in range(3)]
        self.inputs: dict[str, np.ndarray] = {}
        for i in range(3):
            rank = self.rng.choice([1, 2, 3, 3])
            shape = [self.rng.choice([d, d, 1]) for d in sizes[3 - rank :]]
            self.inputs[f"x{i}"] = values.standard_normal(shape).astype(np.float32)
        self.known = dict(self.inputs)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.last = ""

    def model(self, nodes: list[onnx.NodeProto], output: str, free: bool = False) -> onnx.ModelProto:
        values = [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * a.ndim if free else list(a.shape))
            for n, a in self.inputs.items()
        ]
        graph = helper.make_graph(nodes, "g", values, [helper.make_empty_tensor_value_info(output)], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)

    def number(self, value: int) -> str:
        name = f"k{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array([value]), name))
        return name

    def grow(self) -> None:
        a, b = (self.rng.choice(list(self.known)) for _ in range(2))
        name = f"t{len(self.nodes)}"
        made = self.rng.choice(GROWTH)(self, a, b, name)
        if made is None:
            return
        result = cases.reference(self.model([*self.nodes, *made], name), list(self.inputs.values()))[0]
        if result.size <= LARGEST and result.ndim <= 4:
            self.nodes += made
            self.known[name] = result
            self.last = name

    def axis(self, name: str) -> int:
        return self.rng.randrange(self.known[name].ndim)


Growth = Callable[[Chain, str, str, str], "list[onnx.NodeProto] | None"]


def together(op: str) -> Growth:
    def grow(chain: Chain, a: str, b: str, out: str) -> list[onnx.NodeProto] | None:
        try:
            np.broadcast_shapes(chain.known[a].shape, chain.known[b].shape)
        except ValueError:
            return None
        if op != "Where":
            return [helper.make_node(op, [a, b], [out])]
        return [helper.make_node("Less", [a, b], [f"{out}c"]), helper.make_node(op, [f"{out}c", a, b], [out])]

    return grow


def alone(make: Callable[[Chain, str, str], onnx.NodeProto], scalar: bool = False) -> Growth:
    def grow(chain: Chain, a: str, b: str, out: str) -> list[onnx.NodeProto] | None:
        return [make(chain, a, out)] if scalar or chain.known[a].ndim else None

    return grow


def transpose(chain: Chain, a: str, out: str) -> onnx.NodeProto:
    perm = list(range(chain.known[a].ndim))
    chain.rng.shuffle(perm)
    return helper.make_node("Transpose", [a], [out], perm=perm)


def last_part(chain: Chain, a: str, out: str) -> onnx.NodeProto:
    start = chain.number(chain.rng.choice([0, -1]))
    return helper.make_node("Slice", [a, start, chain.number(1000), chain.number(chain.axis(a))], [out])


GROWTH: list[Growth] = [
    *(together(op) for op in ("Add", "Mul", "Sub", "Max", "Where")),
    alone(lambda c, a, out: helper.make_node("Relu", [a], [out]), scalar=True),
    alone(lambda c, a, out: helper.make_node("Flatten", [a], [out], axis=c.axis(a))),
    alone(lambda c, a, out: helper.make_node("Softmax", [a], [out], axis=c.axis(a))),
    alone(lambda c, a, out: helper.make_node("Concat", [a, a], [out], axis=c.axis(a))),
    alone(
        lambda c, a, out: helper.make_node("ReduceSum", [a, c.number(c.axis(a))], [out], keepdims=c.rng.choice([0, 1]))
    ),
    alone(lambda c, a, out: helper.make_node("Unsqueeze", [a, c.number(c.axis(a))], [out])),
    alone(lambda c, a, out: helper.make_node("Reshape", [a, c.number(-1)], [out]), scalar=True),
    alone(transpose),
    alone(last_part),
]


@pytest.mark.parametrize("seed", range(60))
def test_a_chain_as_one_region_equals_op_by_op(seed: int) -> None:
    chain = Chain(seed)
    while len(chain.nodes) < 3 + seed % 6:
        chain.grow()
    inputs = list(chain.inputs.values())
    for free in (False, True):
        model = chain.model(chain.nodes, chain.last, free)
        for fused in (False, True):
            cases.compare(cases.evaluate(model, inputs, fused=fused), [chain.known[chain.last]])
