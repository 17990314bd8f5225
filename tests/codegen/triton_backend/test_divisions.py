"""Integer division by Triton kernels: every pair of the ends of a type, against Python's whole numbers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from simulate import Simulated, captured

KINDS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
OPS = ("Div", "Mod", "Mod<fmod = 1>")


def quotient(op: str, a: int, b: int) -> int:
    """0 for a divisor of 0, whatever the op."""
    if b == 0:
        return 0
    toward_zero = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return {"Div": toward_zero, "Mod": a % b, "Mod<fmod = 1>": a - toward_zero * b}[op]


def wrapped(value: int, dtype: np.dtype) -> int:
    bits = 8 * dtype.itemsize
    value %= 1 << bits
    return value - (1 << bits) if dtype.kind == "i" and value >= 1 << (bits - 1) else value


def divided(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    kind = str(a.dtype)
    text = f"({kind}[n] a, {kind}[n] b) => ({kind}[n] y) {{ y = {op}(a, b) }}"
    made = captured(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {text}'))
    assert not made.plan.fallbacks
    inputs = made.model.graph.inputs
    [region] = made.plan.regions
    [y] = Simulated(region, made.facts, inputs).run(dict(zip(inputs, (a, b), strict=True))).values()
    return y


def check(op: str, a: np.ndarray, b: np.ndarray) -> None:
    expected = [wrapped(quotient(op, int(x), int(y)), a.dtype) for x, y in zip(a, b, strict=True)]
    np.testing.assert_array_equal(divided(op, a, b), np.array(expected, a.dtype))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_ends_of_a_type_and_divisors_of_zero(op: str, kind: str):
    range_ = np.iinfo(kind)
    few = (0, 1, 2, 3, 7, -1, -2, -7, range_.max, range_.max - 1, range_.min, range_.min + 1, 2**62 + 1, -(2**53) - 1)
    values = sorted({v for v in few if range_.min <= v <= range_.max})
    pairs = np.array([(x, y) for x in values for y in values], kind)
    check(op, pairs[:, 0].copy(), pairs[:, 1].copy())


@settings(max_examples=30, deadline=None)
@given(st.data(), st.sampled_from(OPS), st.sampled_from(KINDS))
def test_any_integers(data: st.DataObject, op: str, kind: str):
    a, b = (data.draw(arrays.arrays(kind, 5)) for _ in range(2))
    check(op, a, b)
