"""float16 and bfloat16: stored narrow, computed in float32, rounded once where a region ends."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from region_check import floats

import smelt
from smelt.check.contract import TOLERANCES
from smelt.check.references import evaluate_loaded
from smelt.ir.load import load_model
from smelt.passes import run_passes
from smelt.runtime import session_for

KINDS = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
HALF_STEP = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def narrow_model(kind: str, text: str, weights: dict[str, np.ndarray] | None = None) -> onnx.ModelProto:
    """`T` in the text is the type."""
    head = '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]> g '
    model = onnx.parser.parse_model(head + text.replace("T[", f"{kind}["))
    model.graph.initializer.extend(
        numpy_helper.from_array(array.astype(KINDS[kind]), name) for name, array in (weights or {}).items()
    )
    return model


def run_forced(model: onnx.ModelProto, *inputs: Any, levels: str = "v3") -> list[Any]:
    with smelt.compile(model, force=True, levels=levels, verify=False, threads=1) as compiled:
        assert not compiled.result.plan.fallbacks
        names = [value.name for value in model.graph.input]
        return compiled.run(dict(zip(names, inputs, strict=True)))


def rounded(kind: str, *shape: int, seed: int = 0) -> np.ndarray:
    return floats(*shape, seed=seed).astype(KINDS[kind])


def wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)


def assert_rounded_once(found: np.ndarray, exact: np.ndarray, kind: str) -> None:
    """At most half a step of the type from the exact result, and what float32 adds."""
    assert found.dtype == KINDS[kind] and found.shape == exact.shape
    error = np.abs(wide(found) - exact)
    limit = np.abs(exact) * HALF_STEP[kind] + 2e-5 * np.sqrt(np.mean(exact**2)) + 2.0**-24
    assert (error <= limit).all(), float((error - limit).max())


@pytest.mark.parametrize("levels", ["v2", "v3"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_chain_is_rounded_once(kind: str, levels: str) -> None:
    text = "(T[n,m] x, T[m] y) => (T[n,m] z) { a = Add(x, y) b = Mul(a, x) c = Sub(b, y) d = Neg(c) z = Div(d, a) }"
    x, y = rounded(kind, 5, 37), rounded(kind, 37, seed=1)
    a = wide(x) + wide(y)
    (z,) = run_forced(narrow_model(kind, text), x, y, levels=levels)
    assert_rounded_once(z, -(a * wide(x) - wide(y)) / a, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_products_with_narrow_weights(kind: str) -> None:
    weights = {"w": floats(48, 33) * 0.2, "b": floats(33), "v": floats(33, 20, seed=2) * 0.2}
    text = "(T[n,48] x) => (T[n,20] z) { a = Gemm(x, w, b) r = Relu(a) z = MatMul(r, v) }"
    x = rounded(kind, 7, 48)
    (z,) = run_forced(narrow_model(kind, text, weights), x)
    w, b, v = (wide(weights[name].astype(KINDS[kind])) for name in "wbv")
    assert_rounded_once(z, np.maximum(wide(x) @ w + b, 0) @ v, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_products_and_convolutions_hold_the_contract_at_every_level(kind: str) -> None:
    """Where the CPU multiplies bfloat16, rows are rounded to it."""
    weights = {"w": floats(200, 301) * 0.1, "b": floats(301), "v": floats(301, 64, seed=2) * 0.1}
    weights |= {"f": floats(48, 64, 3, 3, seed=3) * 0.1}
    text = """(T[n,200] x) => (T[n,48,a,b] z) {
        h = Gemm(x, w, b) r = Relu(h) m = MatMul(r, v)
        axes = Constant<value_ints = [2, 3]>() i = Unsqueeze(m, axes)
        sizes = Constant<value_ints = [1, 1, 5, 4]>() image = Expand(i, sizes)
        z = Conv<pads = [1, 1, 1, 1]>(image, f) }"""
    model = narrow_model(kind, text, weights)
    x = rounded(kind, 9, 200)
    with smelt.compile(model, threads=1, timing=False) as compiled:
        assert not compiled.result.plan.fallbacks
        (z,) = compiled.run({"x": x})
    w, b, v, f = (wide(weights[name].astype(KINDS[kind])) for name in "wbvf")
    m = np.maximum(wide(x) @ w + b, 0) @ v
    middle = np.einsum("nc,mc->nm", m, f.sum((2, 3)))  # of pixels whose windows see no padding
    error = np.abs(wide(z)[:, :, 2, 2] - middle) / (np.abs(middle) + np.sqrt(np.mean(middle**2)))
    assert error.max() < TOLERANCES[kind]["model"]


@pytest.mark.parametrize("kind", KINDS)
def test_products_of_two_inputs(kind: str) -> None:
    text = """(T[h,n,16] q, T[h,m,16] k) => (T[h,n,m] z) {
        t = Transpose<perm: ints = [0, 2, 1]>(k) s = MatMul(q, t) z = Softmax(s) }"""
    q, k = rounded(kind, 2, 9, 16), rounded(kind, 2, 21, 16, seed=1)
    (z,) = run_forced(narrow_model(kind, text), q, k)
    scores = wide(q) @ wide(k).transpose(0, 2, 1)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    assert_rounded_once(z, powers / powers.sum(-1, keepdims=True), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_convolutions_and_pools(kind: str) -> None:
    weights = {"w": floats(24, 3, 3, 3) * 0.2, "b": floats(24), "d": floats(24, 1, 3, 3, seed=3) * 0.3}
    text = """(T[n,3,h,w2] x) => (T[n,24,p,q] z, T[n,24,p,q] y) {
        a = Conv<pads: ints = [1, 1, 1, 1]>(x, w, b) y = Relu(a)
        z = Conv<pads: ints = [1, 1, 1, 1], group: int = 24>(y, d) }"""
    x = rounded(kind, 2, 3, 11, 14)
    z, y = run_forced(narrow_model(kind, text, weights), x)
    plain = onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 20]> g ' + text.replace("T[", "double["))
    plain.graph.initializer.extend(
        numpy_helper.from_array(wide(a.astype(KINDS[kind])), name) for name, a in weights.items()
    )
    loaded = load_model(plain)
    run_passes(loaded, only=("infer-shapes",))
    exact_z, exact_y = evaluate_loaded(loaded, {loaded.graph.inputs[0]: wide(x)})
    assert_rounded_once(y, exact_y, kind)
    assert_rounded_once(z, exact_z, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_movement_copies_bits(kind: str) -> None:
    text = """(T[n,m] x, int64[k] i) => (T[m,n] t, T[k,m] g, T[n,p] c) {
        t = Transpose(x) g = Gather(x, i) c = Concat<axis: int = 1>(x, x) }"""
    bits = np.random.default_rng(0).integers(0, 1 << 16, (6, 9), dtype=np.uint16)
    x = bits.view(KINDS[kind])
    t, g, c = run_forced(narrow_model(kind, text), x, np.array([5, 0, -1]))
    for found, wanted in ((t, bits.T), (g, bits[[5, 0, -1]]), (c, np.concatenate([bits, bits], 1))):
        same = found.view(np.uint16) == wanted
        nan = np.isnan(wanted.copy().view(KINDS[kind]).astype(np.float32))
        assert (same | (nan & np.isnan(found.astype(np.float32)))).all()


@pytest.mark.parametrize("kind", KINDS)
def test_an_explicit_cast_rounds_inside_of_a_region(kind: str) -> None:
    number = onnx.TensorProto.DataType.Value(kind.upper())
    text = f"(float[n] x) => (float[n] y) {{ a = Cast<to: int = {number}>(x) b = Cast<to: int = 1>(a) y = Mul(b, b) }}"
    x = floats(101)
    (y,) = run_forced(narrow_model(kind, text), x)
    np.testing.assert_array_equal(y, x.astype(KINDS[kind]).astype(np.float32) ** 2)


def test_constants_shapes_and_integers_beside_narrow_floats() -> None:
    # onnx.parser takes the bits of a float16: 0.5 and 2.
    text = """(float16[n,m] x) => (float16[n,m] y, int64[2] s, bool[n,m] p, float16[n,m] w) {
        half = Constant<value = float16 {14336}>() s = Shape(x) a = Mul(x, half) p = Greater(a, half)
        c = ConstantOfShape<value = float16[1] {16384}>(s) y = Add(a, c) w = Where(p, a, y) }"""
    x = rounded("float16", 4, 9)
    y, s, p, w = run_forced(narrow_model("float16", text), x)
    np.testing.assert_array_equal(s, [4, 9])
    np.testing.assert_array_equal(p, wide(x) * 0.5 > 0.5)
    assert_rounded_once(y, wide(x) * 0.5 + 2, "float16")
    assert_rounded_once(w, np.where(p, wide(x) * 0.5, wide(x) * 0.5 + 2), "float16")


def test_a_bfloat16_model_that_stock_does_not_load_runs(tmp_path: Path) -> None:
    """What is left to stock, and has no kernel there, computes in float32 between casts."""
    text = "(T[n,8] x) => (T[n,8] y, T[n,8] u) { a = Gelu(x) y = Add(a, x) b = Mul(a, a) u = Softmax(b) }"
    model = narrow_model("bfloat16", text)
    with pytest.raises(Exception, match=r"(?i)not.?implement|implementation"):
        session_for(model.SerializeToString())
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    x = rounded("bfloat16", 5, 8)
    with smelt.compile(path, levels="v3", exclude=["Softmax"]) as compiled:
        y, u = compiled.run({"x": x})
    gelu = np.array([[v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in row] for row in wide(x)])
    assert_rounded_once(y, gelu + wide(x), "bfloat16")
    powers = np.exp(gelu**2)
    assert_rounded_once(u, powers / powers.sum(-1, keepdims=True), "bfloat16")
