"""Products of 8-bit integers: types, zero points of rows and columns, constant and run-time matrices."""

from __future__ import annotations

import cases
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import smelt

RNG = np.random.default_rng(16)
TYPES = [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8), (np.int8, np.uint8)]


def whole(dtype: type, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def exact(a: np.ndarray, b: np.ndarray, a_zero: np.ndarray, b_zero: np.ndarray) -> np.ndarray:
    rows = a_zero.astype(np.int64).reshape(-1, 1) if a_zero.size > 1 else a_zero.astype(np.int64)
    return ((a.astype(np.int64) - rows) @ (b.astype(np.int64) - b_zero.astype(np.int64))).astype(np.int32)


@pytest.mark.parametrize(("left", "right"), TYPES)
def test_sums_are_exact_for_any_zero_points(left: type, right: type) -> None:
    a, b = whole(left, 2, 5, 11), whole(right, 11, 7)
    for b_zero in (whole(right), whole(right, 7)):
        inputs = [a, b, whole(left), b_zero]
        cases.check_node("MatMulInteger", inputs, expected=[exact(*inputs)], against=("reference",))


def test_each_row_may_have_a_zero_point() -> None:
    inputs = [whole(np.uint8, 5, 11), whole(np.int8, 11, 7), whole(np.uint8, 5), whole(np.int8)]
    cases.check_node("MatMulInteger", inputs, expected=[exact(*inputs)], against=())


def test_zero_points_are_optional() -> None:
    cases.check_node("MatMulInteger", [whole(np.uint8, 5, 3), whole(np.int8, 3, 7)], against=("reference",))


def _model(constant: bool) -> tuple[onnx.ModelProto, np.ndarray]:
    """Stock ONNX Runtime's own sums saturate for these on CPUs without VNNI."""
    b = np.full((70, 40), -128, np.int8)
    b[:, 1::2] = 127
    weights = [numpy_helper.from_array(b, "b")] if constant else []
    inputs = [helper.make_tensor_value_info("a", TensorProto.UINT8, ["rows", 70])]
    inputs += [] if constant else [helper.make_tensor_value_info("b", TensorProto.INT8, [70, 40])]
    made = helper.make_tensor_value_info("y", TensorProto.INT32, ["rows", 40])
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["a", "b"], ["y"])], "g", inputs, [made], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9), b


@pytest.mark.parametrize("constant", [True, False])
def test_kernels_give_the_integers_where_bytes_would_saturate(constant: bool) -> None:
    model, b = _model(constant)
    with smelt.compile(model, force=True, levels="v3", verify=False, threads=1) as compiled:
        assert not compiled.result.plan.fallbacks
        for rows in (1, 9):
            a = np.full((rows, 70), 255, np.uint8)
            (y,) = compiled.run({"a": a} if constant else {"a": a, "b": b})
            np.testing.assert_array_equal(y, a.astype(np.int64) @ b)
