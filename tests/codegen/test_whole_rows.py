"""Epilogues that need whole rows: after the product when its panels are large, in its tasks when they are small."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from region_check import floats

import smelt

ROWS = [1, 7, 150]


def normalized(x, weight, bias):
    product = x.astype(np.float64) @ weight + bias
    centred = product - product.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def model(depth: int, wide: int):
    """Two products of one operand, each with a bias and a normalization; their sum makes them one region."""
    nodes, constants, outputs = [], [], []
    for place in range(2):
        arrays = (floats(depth, wide, seed=place), floats(wide, seed=place), np.ones(wide, np.float32))
        constants += [numpy_helper.from_array(a, f"{n}{place}") for n, a in zip("wbs", arrays, strict=True)]
        nodes.append(helper.make_node("MatMul", ["x", f"w{place}"], [f"m{place}"]))
        nodes.append(helper.make_node("Add", [f"m{place}", f"b{place}"], [f"a{place}"]))
        nodes.append(helper.make_node("LayerNormalization", [f"a{place}", f"s{place}"], [f"y{place}"], epsilon=1e-5))
        outputs.append(helper.make_tensor_value_info(f"y{place}", TensorProto.FLOAT, None))
    nodes.append(helper.make_node("Add", ["y0", "y1"], ["sum"]))
    outputs.append(helper.make_tensor_value_info("sum", TensorProto.FLOAT, None))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", depth])
    graph = helper.make_graph(nodes, "g", [x], outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)


SIZES = {"small panels": (40, 72), "large panels": (700, 130), "large operands": (1900, 130)}


@pytest.mark.parametrize(("depth", "wide"), SIZES.values(), ids=SIZES)
def test_normalized_products_are_right_for_any_number_of_rows(depth: int, wide: int):
    with smelt.compile(model(depth, wide), force=True, verify=False, threads=2) as compiled:
        assert not compiled.result.plan.fallbacks and len(compiled.result.plan.regions) == 1
        for rows in ROWS:
            x = floats(rows, depth)
            wanted = [normalized(x, floats(depth, wide, seed=p), floats(wide, seed=p)) for p in range(2)]
            for found, right in zip(compiled.run({"x": x}), [*wanted, wanted[0] + wanted[1]], strict=True):
                np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4)
