"""Products of one operand whose results meet element by element: one kernel, whatever comes in between."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from region_check import floats

import smelt

DEPTH, WIDE = 40, 72


def model(nodes, weights, output):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", DEPTH])
    y = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph([helper.make_node(*n) for n in nodes], "g", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)


GATED = [
    ("MatMul", ["x", "gate"], ["g"]), ("MatMul", ["x", "up"], ["u"]), ("Add", ["u", "bias"], ["ub"]),
    ("Sigmoid", ["g"], ["s"]), ("Mul", ["g", "s"], ["silu"]), ("Mul", ["silu", "ub"], ["y"]),
]  # fmt: skip


def compiled_on(made: onnx.ModelProto, x):
    with smelt.compile(made, force=True, verify=False, threads=2) as compiled:
        assert not compiled.result.plan.fallbacks
        kernels = [k for e in compiled.result.generated.source.entries for k in e.kernels]
        return compiled.run({"x": x})[0], kernels


@pytest.mark.parametrize("rows", [1, 7, 150])
def test_gate_and_up_are_one_kernel(rows: int):
    weights = {"gate": floats(DEPTH, WIDE), "up": floats(DEPTH, WIDE, seed=1), "bias": floats(WIDE, seed=2)}
    x = floats(rows, DEPTH)
    found, kernels = compiled_on(model(GATED, weights, "y"), x)
    g, u = (x.astype(np.float64) @ weights[w] for w in ("gate", "up"))
    np.testing.assert_allclose(found, g / (1 + np.exp(-g)) * (u + weights["bias"]), rtol=1e-4, atol=1e-4)
    assert len(kernels) == 1
    terms, epilogue = 2 * 2 * DEPTH * WIDE, 40 * WIDE
    per_row = int(kernels[0].flops.removesuffix("*d:rows"))
    assert terms < per_row < terms + epilogue


def test_products_in_need_of_each_other_stay_apart():
    """The second product is scaled by a sum over the first: it cannot run in the same task."""
    weights = {"gate": floats(DEPTH, WIDE), "up": floats(DEPTH, WIDE, seed=1), "axes": np.array([0], np.int64)}
    nodes = [
        ("MatMul", ["x", "gate"], ["g"]), ("ReduceSum", ["g", "axes"], ["t"]), ("MatMul", ["x", "up"], ["u"]),
        ("Mul", ["u", "t"], ["ut"]), ("Add", ["g", "ut"], ["y"]),
    ]  # fmt: skip
    x = floats(33, DEPTH)
    found, kernels = compiled_on(model(nodes, weights, "y"), x)
    g, u = (x.astype(np.float64) @ weights[w] for w in ("gate", "up"))
    np.testing.assert_allclose(found, g + u * g.sum(0, keepdims=True), rtol=1e-3, atol=1e-3)
    assert len(kernels) > 1
