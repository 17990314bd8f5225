"""Casts between every pair of types, and what does not fit."""

import itertools

import cases
import numpy as np
import pytest
from onnx import TensorProto, helper

TYPES = [
    np.float32, np.float64, np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
]  # fmt: skip


def code(dtype: type) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def values(dtype: type) -> np.ndarray:
    """What every type can hold, fractions for the floats."""
    if dtype is np.bool_:
        return np.array([True, False])
    small = [0, 1, 2, 100, 127]
    return np.array([*small, 0.5, 1.9, 99.99] if np.issubdtype(dtype, np.floating) else small, dtype)


@pytest.mark.parametrize(("source", "target"), itertools.product(TYPES, TYPES), ids=str)
def test_every_pair(source: type, target: type) -> None:
    x = values(source)
    cases.check_node("Cast", [x], attrs={"to": code(target)})
    cases.check_node("CastLike", [x, np.zeros(2, target)], expected=[x.astype(target)])


@pytest.mark.parametrize("opset", [7, 9, 13, 19, 21, 23, 24, 25])
def test_every_version(opset: int) -> None:
    cases.check_node("Cast", [np.array([-1.7, 2.5], np.float32)], opset=opset, attrs={"to": code(np.int32)})


@pytest.mark.parametrize(("source", "target"), itertools.product(TYPES[3:], TYPES[3:]), ids=str)
def test_integers_wrap(source: type, target: type) -> None:
    info = np.iinfo(source)
    x = np.array([info.min, info.max, info.max - 1], source)
    cases.check_node("Cast", [x], attrs={"to": code(target)}, expected=[x.astype(target)])


def test_negative_fractions_truncate() -> None:
    x = np.array([-1.9, -0.5, -100.99], np.float64)
    cases.check_node("Cast", [x], attrs={"to": code(np.int8)}, expected=[np.array([-1, 0, -100], np.int8)])


@pytest.mark.parametrize("target", [np.int32, np.int64])
def test_what_does_not_fit_is_the_least_number(target: type) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30], np.float32)
    least = np.full(5, np.iinfo(target).min, target)
    cases.check_node("Cast", [x], attrs={"to": code(target)}, expected=[least], against=())


def test_every_nonzero_is_true() -> None:
    x = np.array([0.0, -0.0, 1e-45, np.nan, -3.0], np.float32)
    cases.check_node("Cast", [x], attrs={"to": code(np.bool_)}, expected=[np.array([False, False, True, True, True])])


def test_types_without_a_kernel_are_refused_by_name() -> None:
    assert "float8e5m2" in cases.refuses("Cast", [np.ones(2, np.float32)], attrs={"to": TensorProto.FLOAT8E5M2})
    assert "string" in cases.refuses("Cast", [np.ones(2, np.float32)], attrs={"to": TensorProto.STRING})
