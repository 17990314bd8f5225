"""A product that is read in two places is one number in both: no fused multiply-add takes it unrounded in one."""

from __future__ import annotations

import numpy as np
import pytest
from region_check import Graph, check, floats

SCALE = "s = Constant <value = float {0.1767767}> ()"
# What is subtracted is a largest value of what it is subtracted from: differences are 0 at most, and 0 somewhere.
FORMS = {
    "rows": "y = Mul(a, b) m = ReduceMax <keepdims = 1> (y, last) d = Sub(y, m)",
    "columns": "y = Mul(a, b) m = ReduceMax <keepdims = 1> (y, first) d = Sub(y, m)",
    "transposed": """y = Mul(a, b) m = ReduceMax <keepdims = 1> (y, last)
        t = Transpose <perm = [1, 0]> (y) n = Transpose <perm = [1, 0]> (m) d = Sub(t, n)""",
    "all": "y = Mul(a, b) m = ReduceMax <keepdims = 1> (y) d = Sub(y, m)",
    "by a constant": f"{SCALE} y = Mul(a, s) m = ReduceMax <keepdims = 1> (y, last) d = Sub(y, m)",
    "quotient": f"{SCALE} y = Div(a, s) m = ReduceMax <keepdims = 1> (y, last) d = Sub(y, m)",
    "of a product": f"{SCALE} p = MatMul(a, c) y = Mul(p, s) m = ReduceMax <keepdims = 1> (y, last) d = Sub(y, m)",
    "with a function": "f = Sigmoid(b) y = Mul(a, f) m = ReduceMax <keepdims = 1> (y, last) d = Sub(y, m)",
    "minimum": "y = Mul(a, b) n = ReduceMin <keepdims = 1> (y, first) d = Sub(n, y)",
}
SOFTMAX = {
    "softmax": f"{SCALE} p = MatMul(a, c) y = Mul(p, s) z = Softmax(y)",
    "log": f"{SCALE} p = MatMul(a, c) y = Mul(p, s) z = LogSoftmax(y)",
    "columns": f"{SCALE} p = MatMul(a, c) y = Mul(p, s) z = Softmax <axis = 0> (y)",
    "attention": f"{SCALE} p = MatMul(a, c) y = Mul(p, s) w = Softmax(y) z = MatMul(w, b)",
}
AXES = "last = Constant <value = int64[1] {-1}> () first = Constant <value = int64[1] {0}> ()"


def operands(scale: float) -> list[np.ndarray]:
    return [floats(49, 40, seed=1) * np.float32(scale), floats(49, 40, seed=2) * np.float32(scale),
            floats(40, 49, seed=3) * np.float32(scale)]  # fmt: skip


def graph(body: str, result: str, scale: float) -> Graph:
    ends = f"(float[n, k] a, float[n, k] b, float[k, n] c) => (float[i, j] {result})"
    return Graph(f"{ends} {{ {AXES} {body} {result} = Identity({result}0) }}", operands(scale))


def written(body: str, result: str) -> str:
    return body.replace(f" {result} = ", f" {result}0 = ")


@pytest.mark.parametrize("levels", ["v2", "v3"])
def test_the_largest_value_less_itself_is_zero(levels: str) -> None:
    """Products of a million each: a rounding of one is more than an exponential can take."""
    ends = [graph(written(f"{b} z = Exp(d)", "z"), "z", 1e6) for b in FORMS.values()]
    check(*ends, levels=levels, rtol=1.0)  # a rounding of the scores is a factor; no value above 1, no infinity


@pytest.mark.parametrize("scale", [1e3, 1e5, 1e8])
def test_softmax_of_large_scaled_scores(scale: float) -> None:
    check(*(graph(written(b, "z"), "z", scale) for b in SOFTMAX.values()), levels="v3", rtol=1e-5, atol=1e-5)


def test_what_is_rounded_is_floored_alike() -> None:
    """x * 0.7 + 0.9, where at one x in twenty one rounding more or less makes another integer."""
    text = """(float[n] x) => (float[n] y) {
        s = Constant <value = float {0.7}> () t = Constant <value = float {0.9}> ()
        p = Mul(x, s) q = Add(p, t) y = Floor(q) }"""
    check(Graph(text, [np.arange(10_000, dtype=np.float32)]), levels="v3", rtol=0, atol=0)
