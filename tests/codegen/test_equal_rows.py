"""Normalized rows of equal values are 0, as stock's are; rows far from 0 are as exact as stock's."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser
from region_check import floats, stock

import smelt

VALUES = (0.1, 1000.3, -77777.7, 1e5 + 0.1, 3.3e10)
HEAD = '<ir_version: 9, opset_import: ["" : 21, "com.microsoft" : 1]> g '
FORMS = {
    "layer": "(float[n,c] x, float[c] s, float[c] b) => (float[n,c] y) { y = LayerNormalization(x, s, b) }",
    "residual": """(float[n,c] x, float[c] s, float[c] b) => (float[n,c] y) {
        h = Neg(x) a = Sub(x, h) y = LayerNormalization(a, s, b) }""",
    "skip": """(float[n,1,c] x, float[c] s, float[c] b) => (float[n,1,c] y) {
        y = com.microsoft.SkipLayerNormalization <epsilon = 1e-5> (x, x, s, b) }""",
    "instance": "(float[n,3,c] x, float[3] s, float[3] b) => (float[n,3,c] y) { y = InstanceNormalization(x, s, b) }",
    "group": """(float[n,4,c] x, float[4] s, float[4] b) => (float[n,4,c] y) {
        y = GroupNormalization <num_groups = 2> (x, s, b) }""",
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_equal_values_are_zero(form: str) -> None:
    model = parser.parse_model(HEAD + FORMS[form])
    between = {"skip": (1,), "instance": (3,), "group": (4,)}.get(form, ())
    with smelt.compile(model, force=True, levels="v3", verify=False, threads=1) as compiled:
        for width in (7, 48, 100, 768, 1000):
            shape = (len(VALUES), *between, width)
            x = np.broadcast_to(np.array(VALUES, np.float32).reshape(-1, *(1,) * (len(shape) - 1)), shape).copy()
            size = between[0] if form in ("instance", "group") else width
            y = compiled.run({"x": x, "s": np.ones(size, np.float32), "b": np.zeros(size, np.float32)})[0]
            np.testing.assert_array_equal(y, 0)


# a mean, deviations from it, a width
FAR = ((1e4, 1, 768), (1e6, 10, 768), (1e7, 1, 33), (1e7, 10, 33), (1e7, 100, 33), (3e7, 100, 3072))


def test_rows_far_from_zero_are_as_exact_as_stocks() -> None:
    model = parser.parse_model(HEAD + FORMS["layer"])
    with smelt.compile(model, force=True, levels="v3", verify=False, threads=1) as compiled:
        for mean, size, width in FAR:
            x = np.float32(mean) + np.float32(size) * floats(64, width, seed=1)
            s, b = np.ones(width, np.float32), np.zeros(width, np.float32)
            wide = x.astype(np.float64)
            deviation = wide - wide.mean(1, keepdims=True)
            want = deviation / np.sqrt((deviation**2).mean(1, keepdims=True) + 1e-5)
            ours = np.abs(compiled.run({"x": x, "s": s, "b": b})[0] - want).max(1)
            theirs = np.abs(stock(model, [x, s, b])[0] - want).max(1)
            assert (ours <= 1.001 * theirs + 1e-6).all(), (mean, size, width, ours / theirs)
