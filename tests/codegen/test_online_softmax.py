"""Attention over long rows: weights made block by block with a running maximum give what whole rows give."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from region_check import Graph, check

import smelt
from smelt.runtime import Executable, SessionSettings

TEXT = """(float[b,h,s,16] q, float[b,h,t,16] k, float[b,h,t,24] v) => (float[b,h,s,24] y) {
            kt = Transpose<perm=[0,1,3,2]>(k)  x = MatMul(q, kt)  p = Softmax(x)  y = MatMul(p, v) }"""
BIASED = """(float[b,h,s,16] q, float[b,h,t,16] k, float[b,h,t,24] v, float[b,1,s,t] m) => (float[b,h,s,24] y) {
              kt = Transpose<perm=[0,1,3,2]>(k)  raw = MatMul(q, kt)  x = Add(raw, m)
              p = Softmax(x)  y = MatMul(p, v) }"""
SMALL = "-DSMELT_B2B_LONG=40 -DSMELT_B2B_SPAN=32 -DSMELT_B2B_LONG_ROWS=9"


def operands(rows: int, keys: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s).astype(np.float32) for s in ((1, 2, rows, 16), (1, 2, keys, 16), (1, 2, keys, 24))]


def weighed(q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: np.ndarray | float = 0.0) -> np.ndarray:
    """In float64, as the reference has it."""
    with np.errstate(all="ignore"):
        scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) + bias
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return ((powers / powers.sum(-1, keepdims=True)) @ v).astype(np.float32)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMELT_CFLAGS", SMALL)


@pytest.mark.parametrize("level", ["v2", "v3"])
def test_any_length(small_blocks: None, level: str) -> None:
    cases = [(rows, keys) for rows in (1, 4, 5, 30) for keys in (1, 31, 33, 41, 64, 65, 100, 257)]
    made = [operands(*sizes) for sizes in cases]
    check(*(Graph(TEXT, one, [weighed(*one)]) for one in made), levels=level, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [3, 40, 99])
def test_what_is_not_finite(small_blocks: None, value: float, place: int) -> None:
    graphs = []
    for which in range(3):
        q, k, v = operands(12, 100, seed=which)
        (q, k, v)[which][0, 1, min(place, 11) if which == 0 else place, 5] = value
        graphs.append(Graph(TEXT, [q, k, v], [weighed(q, k, v)]))
    check(*graphs, rtol=1e-5, atol=2e-6)


def test_blocks_that_a_row_does_not_see(small_blocks: None) -> None:
    """The first block, one in the middle, the last, all but one column, and everything."""
    q, k, v = operands(12, 130)
    graphs = []
    for masked in (-np.inf, np.finfo(np.float32).min, -60.0):
        bias = np.zeros((1, 1, 12, 130), np.float32)
        for row, hidden in enumerate([slice(0, 32), slice(0, 64), slice(40, 96), slice(96, 130), slice(1, 130)]):
            bias[0, 0, row, hidden] = masked
        graphs.append(Graph(BIASED, [q, k, v, bias], [weighed(q, k, v, bias)]))
        bias = bias.copy()
        bias[0, 0, 7] = masked
        graphs.append(Graph(BIASED, [q, k, v, bias], [weighed(q, k, v, bias)]))
    check(*graphs, rtol=1e-5, atol=2e-6)


def test_scores_that_rise_and_fall_from_block_to_block(small_blocks: None) -> None:
    q, k, v = operands(9, 128)
    tilt = np.concatenate([np.linspace(-80, 80, 64), np.linspace(80, -300, 64)]).astype(np.float32)
    bias = np.broadcast_to(tilt, (1, 1, 9, 128)).copy()
    check(Graph(BIASED, [q, k, v, bias], [weighed(q, k, v, bias)]), rtol=1e-5, atol=2e-6)


def test_no_keys_at_all(small_blocks: None) -> None:
    q, k, v = operands(9, 0)
    check(Graph(TEXT, [q, k, v], [np.zeros((1, 2, 9, 24), np.float32)]))


def test_the_default_sizes_on_a_long_row() -> None:
    q, k, v = operands(40, 2500)
    bias = np.where(np.arange(2500) < 2400, 0, -np.inf).astype(np.float32)[None, None, None].repeat(40, 2)
    check(
        Graph(TEXT, [q, k, v], [weighed(q, k, v)]), Graph(BIASED, [q, k, v, bias], [weighed(q, k, v, bias)]),
        levels="v3", rtol=1e-5, atol=2e-6,
    )  # fmt: skip


def test_a_row_does_not_depend_on_threads_or_on_the_rows_beside_it(small_blocks: None) -> None:
    """The mask of the other rows decides which columns a task looks at, not how a row's columns are added up."""
    q, k, v = operands(18, 200)
    bias = np.zeros((1, 1, 18, 200), np.float32)
    bias[0, 0, :, 150:] = bias[0, 0, :, :16] = -np.inf
    wider = bias.copy()
    wider[0, 0, 1:] = 0
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 21]> g {BIASED}').SerializeToString()
    with smelt.compile(model, force=True, levels="v3", verify=False) as compiled:
        folder = compiled.result.artifact.directory
        found = []
        for threads in (1, 2, 4):
            session = Executable.open(folder, SessionSettings(threads=threads))
            found.append([session.run({"q": q, "k": k, "v": v, "m": m})[0] for m in (bias, wider)])
    for narrow, wide in found:
        assert np.array_equal(narrow, found[0][0]) and np.array_equal(wide, found[0][1])
        assert np.array_equal(narrow[:, :, 0], wide[:, :, 0])
