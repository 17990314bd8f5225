"""Softmax and kin: cases of the ONNX suite, the matrix form before opset 13, large and infinite elements."""

import cases
import numpy as np
import pytest

FAMILY = ["Softmax", "LogSoftmax", "Hardmax"]
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("case", cases.backend_cases(*FAMILY), ids=lambda c: c.name)
def test_backend_case_is_right(case: cases.Case) -> None:
    cases.run_case(case)


@pytest.mark.parametrize("op", FAMILY)
@pytest.mark.parametrize("attrs", [{}, {"axis": 0}, {"axis": 2}, {"axis": -2}])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_axis_from_13_and_a_matrix_before(op: str, attrs: dict[str, int], dtype: str) -> None:
    x = RNG.standard_normal((2, 3, 4)).astype(dtype)
    cases.check_node(op, [x], opset=13, attrs=attrs)
    cases.check_node(op, [x], opset=11, attrs=attrs, against=("ort",))


@pytest.mark.parametrize("op", FAMILY)
def test_a_matrix_split_after_its_last_axis_has_rows_of_one_element(op: str) -> None:
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    expected = np.zeros_like(x) if op == "LogSoftmax" else np.ones_like(x)
    cases.check_node(op, [x], opset=11, attrs={"axis": 2}, expected=[expected], against=())


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_large_elements_do_not_overflow(op: str) -> None:
    x = np.array([[1e4, 1e4 - 1, -1e4], [-1e30, -1e30, 0]], np.float32)
    made = cases.check_node(op, [x], against=("ort",))
    assert np.isfinite(made[0]).all()


def test_masked_elements_weigh_nothing() -> None:
    x = np.array([[1, -np.inf, 2]], np.float32)
    assert cases.check_node("Softmax", [x])[0][0, 1] == 0


def test_the_first_of_equal_maxima_is_hard() -> None:
    x = np.array([[1, 3, 3], [2, 2, 2]], np.float32)
    cases.check_node("Hardmax", [x], expected=[np.array([[0, 1, 0], [1, 0, 0]], np.float32)])


@pytest.mark.parametrize("op", FAMILY)
def test_nothing_gives_nothing(op: str) -> None:
    x = np.zeros((2, 0), np.float32)
    for opset in (11, 13):
        cases.check_node(op, [x], opset=opset, expected=[x], against=())


@pytest.mark.parametrize("op", FAMILY)
def test_an_axis_out_of_range_is_refused(op: str) -> None:
    assert "out of range" in cases.refuses(op, [np.zeros((2, 2), np.float32)], attrs={"axis": 3})
