"""Bit operations and shifts at the edges of their types."""

import cases
import numpy as np
import pytest

UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]
SIGNED = [np.int8, np.int16, np.int32, np.int64]


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shift_of_unsigned(dtype: type, direction: str) -> None:
    x = np.array([1, 4, 200, 255, 7], dtype)
    count = np.array([1, 2, 3, 0, 7], dtype)
    cases.check_node("BitShift", [x, count], attrs={"direction": direction})


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_shift_by_the_width_leaves_zero(dtype: type) -> None:
    x = np.array([255, 3], dtype)
    count = np.full(2, 8 * np.dtype(dtype).itemsize, dtype)
    for direction in ("LEFT", "RIGHT"):
        attrs = {"direction": direction}
        cases.check_node("BitShift", [x, count], attrs=attrs, expected=[np.zeros(2, dtype)], against=())


@pytest.mark.parametrize("dtype", SIGNED)
def test_signed_shift_keeps_the_sign(dtype: type) -> None:
    width = 8 * np.dtype(dtype).itemsize
    x = np.array([-8, -8, 8, -1, -5, 5], dtype)
    count = np.array([1, width, width, -1, width - 1, 2], dtype)
    right = np.array([-4, -1, 0, -1, -1, 1], dtype)
    cases.check_node("BitShift", [x, count], opset=28, attrs={"direction": "RIGHT"}, expected=[right], against=())
    left = np.array([-16, 0, 0, 0, np.iinfo(dtype).min, 20], dtype)
    cases.check_node("BitShift", [x, count], opset=28, attrs={"direction": "LEFT"}, expected=[left], against=())


def test_shift_without_a_direction_is_refused() -> None:
    x = np.ones(2, np.uint8)
    assert "direction" in cases.refuses("BitShift", [x, x])
    assert "LEFT" in cases.refuses("BitShift", [x, x], attrs={"direction": "UP"})


@pytest.mark.parametrize("op", ["Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"])
def test_nothing_compares_with_nan(op: str) -> None:
    a = np.array([np.nan, 1.0, np.nan, np.inf], np.float32)
    b = np.array([1.0, np.nan, np.nan, np.inf], np.float32)
    expected = np.array([False, False, False, op in ("LessOrEqual", "GreaterOrEqual", "Equal")])
    cases.check_node(op, [a, b], expected=[expected])


def test_large_integers_compare_exactly() -> None:
    a, b = np.array([2**53 + 1, -(2**63)]), np.array([2**53, 2**63 - 1])
    cases.check_node("Equal", [a, b], expected=[np.array([False, False])])
    cases.check_node("Greater", [a, b], expected=[np.array([True, False])])
