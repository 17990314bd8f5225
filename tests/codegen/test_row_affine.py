"""Products whose tasks keep to blocks of rows: every row once, the same bits with any number of threads."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper, parser
from region_check import floats

import smelt

WIDTHS = [7, 64, 72, 130, 200]
DEPTH = 65


def products():
    """Products of one operand that run together, some with a bias and an activation, then one of a sum of them."""
    nodes, weights = [], []
    for place, width in enumerate([*WIDTHS, 72]):
        weights.append(numpy_helper.from_array(floats(DEPTH, width, seed=place), f"w{place}"))
        nodes.append(helper.make_node("MatMul", ["x", f"w{place}"], [f"p{place}"]))
        weights.append(numpy_helper.from_array(floats(width, seed=place + 9), f"b{place}"))
        nodes.append(helper.make_node("Add", [f"p{place}", f"b{place}"], [f"s{place}"]))
        nodes.append(helper.make_node("Relu", [f"s{place}"], [f"y{place}"]))
    weights.append(numpy_helper.from_array(floats(72, 40, seed=20), "last"))
    nodes.append(helper.make_node("Add", ["y2", "y5"], ["sum"]))
    nodes.append(helper.make_node("MatMul", ["sum", "last"], ["z"]))
    outputs = [helper.make_tensor_value_info(name, T.FLOAT, None) for name in [*(f"y{n}" for n in range(5)), "z"]]
    x = helper.make_tensor_value_info("x", T.FLOAT, ["rows", DEPTH])
    graph = helper.make_graph(nodes, "g", [x], outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)


def expected(x: np.ndarray) -> list[np.ndarray]:
    wide = [floats(DEPTH, w, seed=n).astype(np.float64) for n, w in enumerate([*WIDTHS, 72])]
    bias = [floats(w, seed=n + 9).astype(np.float64) for n, w in enumerate([*WIDTHS, 72])]
    made = [np.maximum(x.astype(np.float64) @ w + b, 0) for w, b in zip(wide, bias, strict=True)]
    return [*made[:5], (made[2] + made[5]) @ floats(72, 40, seed=20).astype(np.float64)]


@pytest.fixture(scope="module")
def both():
    with (
        smelt.compile(products(), force=True, verify=False, threads=1) as one,
        smelt.compile(products(), force=True, verify=False, threads=2) as two,
    ):
        yield one, two


@pytest.mark.parametrize("rows", [1, 4, 37, 95, 96, 97, 127, 128, 129, 191, 192, 193, 400, 1111, 4097])
def test_every_row_is_right_and_no_bit_depends_on_threads(both, rows):
    x = floats(rows, DEPTH)
    found = [compiled.run({"x": x}) for compiled in both]
    for one, two, wanted in zip(*found, expected(x), strict=True):
        assert np.array_equal(one, two)
        np.testing.assert_allclose(one, wanted, rtol=2e-5, atol=2e-4)


@pytest.fixture(scope="module")
def far():
    """Panels that do not stay in L2: two layers, an activation between them and a residual."""
    text = """<ir_version: 9, opset_import: ["" : 21]>
    far (float[rows,600] x) => (float[rows,600] z) {
        p = MatMul(x, first)  s = Add(p, bias)  a = Gelu(s)  q = MatMul(a, second)  z = Add(q, x) }"""
    model = parser.parse_model(text)
    shapes = {"first": (600, 500), "bias": (500,), "second": (500, 600)}
    for place, (name, shape) in enumerate(shapes.items()):
        model.graph.initializer.append(numpy_helper.from_array(floats(*shape, seed=place) / np.float32(25), name))
    with (
        smelt.compile(model, force=True, verify=False, threads=1) as one,
        smelt.compile(model, force=True, verify=False, threads=2) as two,
    ):
        yield one, two


@pytest.mark.parametrize("rows", [191, 192, 196, 255, 257, 513, 1024, 1025])
def test_panels_that_pass_by_meet_every_row(far, rows):
    x = floats(rows, 600)
    one, two = (compiled.run({"x": x})[0] for compiled in far)
    assert np.array_equal(one, two)
    first, bias, second = (
        floats(*s, seed=n).astype(np.float64) / 25 for n, s in enumerate([(600, 500), (500,), (500, 600)])
    )
    hidden = x.astype(np.float64) @ first + bias
    halves = np.vectorize(math.erf)(hidden / math.sqrt(2)) * 0.5 + 0.5
    np.testing.assert_allclose(one, (hidden * halves) @ second + x, rtol=2e-5, atol=2e-5)
