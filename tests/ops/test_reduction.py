"""Reductions: the ONNX suite, axes in every form, empty sets, NaN, integers and truth values."""

import cases
import numpy as np
import pytest

REDUCTIONS = [
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare",
]  # fmt: skip
SUITE = cases.backend_cases(*REDUCTIONS, "ArgMax", "ArgMin")


def positive(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(0).uniform(0.5, 2.0, shape).astype(dtype)


def axes_of(*axes: int) -> np.ndarray:
    return np.array(axes, np.int64)


def test_the_suite_has_cases() -> None:
    assert len(SUITE) > 100


@pytest.mark.parametrize("case", SUITE, ids=lambda c: c.name)
def test_backend_case_is_right(case: cases.Case) -> None:
    cases.run_case(case)


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [(1,), (-1, 0), (0, 1, 2)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_axes_as_attribute_as_constant_and_at_run_time_agree(
    op: str, keepdims: int, axes: tuple[int, ...], dtype: str
) -> None:
    x = positive(2, 3, 4, dtype=dtype)
    newest = cases.check_node(op, [x, axes_of(*axes)], constants=[1], attrs={"keepdims": keepdims})
    at_run_time = cases.check_node(op, [x, axes_of(*axes)], free=[0], attrs={"keepdims": keepdims})
    older = cases.check_node(op, [x], opset=11, attrs={"keepdims": keepdims, "axes": list(axes)})
    np.testing.assert_allclose(newest[0], at_run_time[0], rtol=1e-6)
    np.testing.assert_allclose(newest[0], older[0], rtol=1e-6)


@pytest.mark.parametrize("op", REDUCTIONS)
def test_no_axes_means_all_of_them(op: str) -> None:
    x = positive(2, 3)
    cases.check_node(op, [x])
    cases.check_node(op, [x, axes_of()], constants=[1], attrs={"keepdims": 0})
    cases.check_node(op, [x], opset=7)


@pytest.mark.parametrize("op", REDUCTIONS)
def test_no_axes_and_noop_applies_the_function_to_each_element(op: str) -> None:
    x = positive(2, 3)
    cases.check_node(op, [x], attrs={"noop_with_empty_axes": 1})
    cases.check_node(op, [x, axes_of()], free=[0], attrs={"noop_with_empty_axes": 1, "keepdims": 0})


@pytest.mark.parametrize("op", REDUCTIONS)
def test_a_scalar_is_reduced_to_itself(op: str) -> None:
    x = positive()
    functions = {"ReduceLogSum": np.log, "ReduceSumSquare": np.square}
    cases.check_node(op, [x], expected=[np.asarray(functions.get(op, np.asarray)(x))])


@pytest.mark.parametrize("op", [r for r in REDUCTIONS if r != "ReduceMean"])
def test_the_reduction_of_nothing_is_the_identity_element(op: str) -> None:
    cases.check_node(op, [np.zeros((2, 0, 3), np.float32), axes_of(1)], constants=[1])


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_the_extreme_of_no_integers_is_the_far_end_of_their_range(op: str) -> None:
    for dtype in ("int32", "int64", "uint8", "int8"):
        cases.check_node(op, [np.zeros((2, 0), dtype), axes_of(1)], constants=[1])


def test_the_mean_of_nothing_is_nan() -> None:
    made = cases.check_node("ReduceMean", [np.zeros((2, 0), np.float32), axes_of(1)], constants=[1], against=())
    assert np.isnan(made[0]).all()


@pytest.mark.parametrize("op", REDUCTIONS)
def test_nan_propagates(op: str) -> None:
    x = positive(3, 5)
    x[1, 3] = np.nan
    made = cases.check_node(op, [x, axes_of(1)], constants=[1], against=("reference",))
    assert np.isnan(made[0]).tolist() == [[False], [True], [False]]


def test_log_sum_exp_survives_large_and_infinite_elements() -> None:
    x = np.array([[1e4, 1e4], [-1e4, -1e4], [np.inf, 1], [np.inf, np.inf], [-np.inf, -np.inf]], np.float32)
    expected = np.array([1e4 + np.log(2), -1e4 + np.log(2), np.inf, np.inf, -np.inf], np.float32)
    cases.check_node(
        "ReduceLogSumExp", [x, axes_of(1)], constants=[1], attrs={"keepdims": 0}, expected=[expected]
    )  # fmt: skip


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_integers_agree_with_the_reference_and_ort(op: str, dtype: str) -> None:
    x = np.array([[1, 2, 4], [7, 3, 5]], dtype)
    against = ("ort",) if "Log" in op or op == "ReduceSumSquare" else ("reference", "ort")
    cases.check_node(op, [x, axes_of(1)], constants=[1], opset=18, against=against)


def test_the_mean_of_negative_integers_rounds_towards_zero() -> None:
    x = np.array([[-7, 3, 2], [7, 1, 0]], np.int32)
    cases.check_node("ReduceMean", [x, axes_of(1)], constants=[1], attrs={"keepdims": 0},
                     expected=[np.array([0, 2], np.int32)])  # fmt: skip


def test_the_magnitude_of_negative_integers() -> None:
    x = np.array([[-7, 3, 2], [7, -1, 0]], np.int32)
    cases.check_node("ReduceL1", [x, axes_of(1)], constants=[1])


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_truth_values_have_extremes(op: str) -> None:
    x = np.array([[True, False], [True, True], [False, False]])
    cases.check_node(op, [x, axes_of(1)], constants=[1], opset=20)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("attrs", [{}, {"axis": -1, "keepdims": 0}, {"axis": 1, "select_last_index": 1}])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8", "uint8"])
def test_the_place_of_an_extreme_among_equals(op: str, attrs: dict[str, int], dtype: str) -> None:
    x = np.array([[3, 1, 3, 1], [0, 2, 2, 0]], dtype)
    cases.check_node(op, [x], attrs=attrs)


def test_the_first_nan_is_the_extreme() -> None:
    x = np.array([[1, np.nan, 3, np.nan]], np.float32)
    for op in ("ArgMax", "ArgMin"):
        cases.check_node(op, [x], attrs={"axis": 1}, expected=[np.array([[1]])], against=())


def test_axes_out_of_range_are_refused() -> None:
    assert "out of range" in cases.refuses("ReduceSum", [positive(2, 3), axes_of(2)], constants=[1])
    assert "out of range" in cases.refuses("ArgMax", [positive(2, 3)], attrs={"axis": -3})


@pytest.mark.parametrize("axes", [(0, -3), (3,), (-4, 1)])
def test_axes_at_run_time_that_repeat_or_are_out_of_range_are_a_failed_requirement(axes: tuple[int, ...]) -> None:
    with pytest.raises(AssertionError, match="requirement fails: axes must be distinct"):
        cases.check_node("ReduceSum", [positive(2, 3, 4), axes_of(*axes)], free=[0], against=())


def test_run_time_axes_of_an_empty_tensor_give_the_identity_element() -> None:
    cases.check_node("ReduceSum", [np.zeros((2, 0, 3), np.float32), axes_of(1)], free=[0], attrs={"keepdims": 0})


def test_a_reduced_vector_of_sizes_stays_known() -> None:
    made = cases.check_node("ReduceProd", [np.array([2, 3, 4], np.int64)], attrs={"keepdims": 1})
    assert made[0].tolist() == [24]


def test_an_unknown_number_of_axes_is_refused() -> None:
    assert "cannot be told" in cases.refuses("ReduceSum", [positive(2, 3), axes_of(1)], free=True)
