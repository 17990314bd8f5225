"""Convolutions of one image that are added become one, and nothing else does."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import ModelProto, numpy_helper

from smelt.passes import run_passes
from smelt.runtime import SessionSettings, session_for

Array = np.ndarray[Any, np.dtype[Any]]


def values(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


CONSTANTS: dict[str, Array] = {
    "three": values(6, 6, 3, 3), "one": values(6, 6, 1, 1, seed=1), "five": values(6, 6, 5, 5, seed=2),
    "wide": values(6, 6, 1, 3, seed=3), "high": values(6, 6, 3, 1, seed=4), "groups": values(6, 3, 3, 3, seed=5),
    "pairs": values(6, 3, 1, 1, seed=6), "single": values(6, 1, 3, 3, seed=7), "tap": values(6, 1, 1, 1, seed=8),
    "b": values(6, seed=9), "gain": values(6, seed=10), "shift": values(6, seed=11), "mean": values(6, seed=12),
    "variance": np.abs(values(6, seed=13)) + np.float32(0.1), "huge": np.full((6, 6, 1, 1), 3e38, np.float32),
}  # fmt: skip
NORMAL = "n = BatchNormalization(x, gain, shift, mean, variance)"
SAME = "pads = [1, 1, 1, 1]"
MERGED = [
    f"c = Conv<{SAME}>(x, three, b)  d = Conv(x, one)  y = Add(c, d)",
    f"c = Conv<{SAME}, strides = [2, 2]>(x, three)  d = Conv<strides = [2, 2]>(x, one, b)  y = Add(d, c)",
    f"c = Conv<{SAME}>(x, three)  d = Conv<pads = [2, 2, 2, 2]>(x, five, b)  y = Add(c, d)",
    "c = Conv<pads = [2, 0, 0, 2]>(x, three)  d = Conv<pads = [0, 0, 0, 0]>(x, one)  y = Add(c, d)",
    f"c = Conv<{SAME}>(x, three)  d = Conv<pads = [0, 1, 0, 1]>(x, wide)  y = Add(c, d)",
    "c = Conv<pads = [2, 2, 2, 2], dilations = [2, 2]>(x, three)  d = Conv(x, one)  y = Add(c, d)",
    f"c = Conv<{SAME}, group = 2>(x, groups)  d = Conv<group = 2>(x, pairs)  y = Add(c, d)",
    f"c = Conv<{SAME}>(x, three, b)  {NORMAL}  y = Add(n, c)",
    f"c = Conv<{SAME}, group = 2>(x, groups)  {NORMAL}  y = Add(c, n)",
    f"c = Conv<{SAME}, group = 6>(x, single)  y = Add(x, c)",
    f"""c = Conv<{SAME}, group = 6>(x, single)  d = Conv<group = 6>(x, tap)  s = Add(c, d)  t = Add(s, x)
        y = BatchNormalization(t, gain, shift, mean, variance)""",
]
KEPT = [
    "c = Conv<pads = [1, 0, 1, 0]>(x, high)  d = Conv<pads = [0, 1, 0, 1]>(x, wide)  y = Add(c, d)",
    f"c = Conv<{SAME}>(x, three)  d = Conv<pads = [2, 2, 2, 2], dilations = [2, 2]>(x, three)  y = Add(c, d)",
    f"c = Conv<{SAME}>(x, three)  d = Conv<group = 2>(x, pairs)  y = Add(c, d)",
    f"r = Relu(x)  c = Conv<{SAME}>(x, three)  d = Conv(r, one)  y = Add(c, d)",
    f"c = Conv<{SAME}>(x, three)  d = Conv(x, one)  s = Add(c, d)  y = Mul(s, d)",
    f"c = Conv<{SAME}>(x, three)  y = Add(x, c)",
    "c = Conv(x, one)  y = Add(c, c)",
    "c = Conv(x, huge)  d = Conv(x, huge, b)  y = Add(c, d)",
    'c = Conv<auto_pad = "SAME_UPPER">(x, three)  d = Conv(x, one)  y = Add(c, d)',
]


def model(body: str) -> ModelProto:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[N,6,H,W] x) => (float[N,6,P,Q] y) {{ {body} }}'
    made = onnx.parser.parse_model(text)
    made.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in CONSTANTS.items() if n in body)
    return made


def merged(made: ModelProto) -> ModelProto:
    found = ir.from_proto(made)
    run_passes(found, only=["infer-shapes", "fold-channel-affine", "merge-parallel-convolutions"])
    return ir.to_proto(found)


def run(made: ModelProto, x: Array) -> Array:
    session = session_for(made.SerializeToString(), None, SessionSettings(threads=1, optimization="disable"))
    return np.asarray(session.run(None, {"x": x})[0])


def ops(made: ModelProto) -> list[str]:
    return [node.op_type for node in made.graph.node]


@pytest.mark.parametrize("body", MERGED)
def test_what_is_added_becomes_one_convolution(body: str):
    before = model(body)
    after = merged(before)
    assert ops(after) == ["Conv"]
    for height, width in ((8, 7), (5, 6), (3, 3)):
        x = values(2, 6, height, width, seed=20)
        np.testing.assert_allclose(run(after, x), run(before, x), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("body", KEPT)
def test_other_sums_stay(body: str):
    assert ops(merged(model(body))) == ops(model(body))
