"""Masked columns are left out of attention's products: the same results, whatever the mask and the operands hold."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from region_check import Graph, check, floats, traits

RNG = np.random.default_rng(11)
LOWEST = np.float32(-3.4028235e38)
PLAIN = """(float[b,h,s,16] q, float[b,h,t,16] k, float[b,h,t,8] v, float[b,1,s,t] m) => (float[b,h,s,8] y) {
             kt = Transpose<perm=[0,1,3,2]>(k)  raw = MatMul(q, kt)  x = Add(raw, m)
             p = Softmax(x)  y = MatMul(p, v) }"""
CHOSEN = """(float[b,h,s,16] q, float[b,h,t,16] k, float[b,h,t,8] v, bool[b,1,s,t] m) => (float[b,h,s,8] y) {
             kt = Transpose<perm=[0,1,3,2]>(k)  raw = MatMul(q, kt)  low = Constant<value = float {-3.4e38}>()
             x = Where(m, raw, low)  p = Softmax(x)  y = MatMul(p, v) }"""


def heads(rows: int, keys: int) -> list[np.ndarray]:
    shapes = [(2, 2, rows, 16), (2, 2, keys, 16), (2, 2, keys, 8)]
    return [RNG.standard_normal(s).astype(np.float32) for s in shapes]


def allowed(kind: str, rows: int, keys: int) -> np.ndarray:
    i, j = np.arange(rows)[:, None] + keys - rows, np.arange(keys)
    made = {
        "causal": j <= i,
        "window": (j <= i) & (j > i - 9),
        "padded": np.broadcast_to((j >= 3) & (j < keys - 20), (rows, keys)),
        "one row masked": (j <= i) & (i != keys - 2),
        "random": RNG.random((rows, keys)) < 0.4,
        "all": j >= 0,
    }[kind]
    return np.broadcast_to(made, (2, 1, rows, keys)).copy()


SMALL_BLOCKS = "-DSMELT_B2B_LONG=16 -DSMELT_B2B_SPAN=16"


@pytest.fixture(params=["", SMALL_BLOCKS], ids=["whole rows", "blocks"], autouse=True)
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything holds as well where rows of weights are made block by block."""
    monkeypatch.setenv("SMELT_CFLAGS", request.param)


KINDS = ("causal", "window", "padded", "one row masked", "random", "all")


@pytest.mark.parametrize("sizes", [(40, 40), (7, 61), (64, 64)], ids=str)
def test_masks_of_any_kind(sizes: tuple[int, int]) -> None:
    graphs = []
    for kind in KINDS:
        mask, operands = allowed(kind, *sizes), heads(*sizes)
        graphs.append(Graph(PLAIN, [*operands, np.where(mask, 0, LOWEST).astype(np.float32)]))
        graphs.append(Graph(CHOSEN, [*operands, mask]))
        if kind != "one row masked":
            graphs.append(Graph(PLAIN, [*operands, np.where(mask, RNG.random(), -np.inf).astype(np.float32)]))
    check(*graphs, atol=2e-6, levels="v3")


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_what_a_masked_column_holds_reaches_the_result_as_before(place: int, value: float) -> None:
    operands = heads(40, 40)
    operands[place][0, 1, 33, 2] = value
    mask = np.where(allowed("causal", 40, 40), 0, LOWEST).astype(np.float32)
    check(Graph(PLAIN, [*operands, mask]), rtol=1e-5, atol=2e-6)


def test_scores_as_large_as_a_mask() -> None:
    q, k, v = heads(40, 40)
    mask = np.where(allowed("causal", 40, 40), 0, np.float32(-2e30)).astype(np.float32)
    check(Graph(PLAIN, [q * 1e15, k * 1e16, v, mask]), rtol=1e-5, atol=2e-6)


def has_mask_bounds(text: str, opset: int) -> bool:
    return "mask bounds" in traits(onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> g {text}'))


def test_weights_that_are_wanted_are_computed_whole() -> None:
    attention = "(float[b,2,s,8] q, float[b,2,s,8] k, float[b,2,s,8] v) => (float[b,2,s,8] y%s)"
    node = "y%s = Attention<is_causal=1, qk_matmul_output_mode=3>(q, k, v)"
    assert has_mask_bounds(attention % "" + "{" + node % "" + "}", 23)
    more = attention % ", float[b,2,s,s] w" + "{" + node % ", , , w" + "}"
    assert not has_mask_bounds(more, 23)
    assert has_mask_bounds(PLAIN, 21)
    assert has_mask_bounds(CHOSEN, 21)


def test_weights_too_small_for_a_normal_number_are_nothing() -> None:
    """A mask of -100 leaves powers of 1e-44, each product with which would take a hundred cycles."""
    text = "(float[2,8,16] q, float[2,16,8] k, float[2,8,16] v, float[8,8] m) => (float[2,8,16] y, float[2,8,8] p) "
    body = "{ s = MatMul(q, k) t = Add(s, m) p = Softmax<axis = -1>(t) y = MatMul(p, v) }"
    mask = np.where(np.arange(8)[:, None] < np.arange(8), -100, 0).astype(np.float32)
    q, k, v = floats(2, 8, 16), floats(2, 16, 8, seed=1) / 8, floats(2, 8, 16, seed=2)
    exact = np.exp((q @ k + mask).astype(np.float64))
    exact /= exact.sum(-1, keepdims=True)
    weights = np.where(mask < 0, 0, exact).astype(np.float32)
    check(Graph(text + body, [q, k, v, mask], [weights @ v, weights]), levels="v3", rtol=1e-5, atol=1e-6)
