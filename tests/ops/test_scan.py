"""Running sums and products: the ONNX suite, every direction, the axis constant or known only at run time."""

import itertools

import cases
import numpy as np
import pytest


@pytest.mark.parametrize("case", cases.backend_cases("CumSum", "CumProd"), ids=lambda c: c.name)
def test_backend_case_is_right(case: cases.Case) -> None:
    cases.run_case(case)


@pytest.mark.parametrize("op", ["CumSum", "CumProd"])
@pytest.mark.parametrize(("exclusive", "reverse"), list(itertools.product([0, 1], [0, 1])))
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_constant_and_a_run_time_axis_agree(op: str, exclusive: int, reverse: int, axis: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    attrs = {"exclusive": exclusive, "reverse": reverse}
    fixed = cases.check_node(op, [x, np.array(axis)], constants=[1], attrs=attrs)
    free = cases.check_node(op, [x, np.array(axis)], attrs=attrs)
    np.testing.assert_array_equal(fixed[0], free[0])


@pytest.mark.parametrize("dtype", ["int32", "int64", "float64"])
def test_other_dtypes(dtype: str) -> None:
    x = np.arange(12).reshape(3, 4).astype(dtype)
    cases.check_node("CumSum", [x, np.array(1, np.int32)], opset=11, constants=[1])


def test_an_axis_out_of_range_is_refused() -> None:
    assert "out of range" in cases.refuses("CumSum", [np.zeros((2, 2), np.float32), np.array(2)], constants=[1])
