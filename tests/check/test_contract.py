"""When a result is right."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from smelt.check.contract import compare, compare_all, has_steps, op_class, tolerance_of
from smelt.check.op_types import op_types_of

REFERENCE = np.array([1.0, -2.0, 3.0, 1000.0])


def as32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_errors_are_relative_to_the_reference_and_its_rms():
    near = as32(1.0, -2.0 - 4e-4, 3.0, 1000.0)  # small beside the rms of 500
    assert not compare(near, REFERENCE, None, 1e-6).problem
    assert compare(near, REFERENCE, None, 1e-7).problem
    assert "off by more than" in compare(as32(1.01, -2.0, 3.0, 1000.0), REFERENCE, None, 1e-6).problem


def test_an_error_as_large_as_that_of_stock_is_allowed_and_a_larger_one_is_not():
    stock = as32(1.01, -2.0, 3.0, 1000.0)
    assert not compare(as32(0.99, -2.0, 3.0, 1000.0), REFERENCE, stock, 1e-6).problem
    assert compare(as32(0.98, -2.0, 3.0, 1000.0), REFERENCE, stock, 1e-6).problem


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_special_values_meet_only_themselves(special: float):
    reference = np.array([special, 1.0])
    assert not compare(as32(special, 1.0), reference, None, 1e-6).problem
    assert compare(as32(0.0, 1.0), reference, None, 1e-6).problem
    assert compare(as32(special, special), reference, None, 1e-6).problem


def test_a_special_value_of_stock_is_as_good_as_that_of_the_reference():
    reference, stock = np.array([np.nan, 1.0]), as32(5.0, 1.0)
    assert not compare(as32(5.0, 1.0), reference, stock, 1e-6).problem
    assert compare(as32(np.inf, 1.0), reference, stock, 1e-6).problem


def test_what_overflows_the_type_is_infinite_there():
    assert not compare(as32(np.inf, 1.0), np.array([1e39, 1.0]), None, 1e-6).problem
    assert compare(as32(-np.inf, 1.0), np.array([1e39, 1.0]), None, 1e-6).problem


def test_integers_and_booleans_are_exact():
    assert (
        compare(np.array([1, 2]), np.array([1, 3]), None, 0.0).problem == "1 of 2 elements differ, first 2 instead of 3"
    )
    assert not compare(np.array([True]), np.array([True]), None, 0.0).problem


def test_a_nan_of_a_type_that_has_no_tolerance_meets_a_nan():
    eight = np.array([1, np.nan, 3], ml_dtypes.float8_e4m3fn)
    assert not compare(eight, eight.copy(), None, tolerance_of(eight, "elementwise")).problem
    assert "1 of 3" in compare(eight, np.array([1, 2, 3], eight.dtype), None, 0.0).problem


def test_beside_a_step_an_element_may_be_that_of_stock():
    result, reference, stock = as32(3.0, 1.0), np.array([2.0, 1.0]), as32(3.0, 1.0)
    assert compare(result, reference, None, 1e-6, steps=True).problem
    assert not compare(result, reference, stock, 1e-6, steps=True).problem
    assert compare(as32(4.0, 1.0), reference, as32(3.0, 1.0), 1e-6, steps=True).problem


def test_shapes_and_counts_must_be_equal():
    assert "shape" in compare(as32(1.0), np.array([[1.0]]), None, 1e-6).problem
    assert compare_all([as32(1.0)], [], None, "model").problem
    assert not compare_all([np.zeros((0, 3), np.float32)], [np.zeros((0, 3))], None, "model").problem


def test_classes_come_from_the_ops():
    assert op_class(["Add", "MatMul"]) == "product" and op_class(["Add"]) == "elementwise"
    assert op_class(["MultiHeadAttention"]) == op_class(["GroupQueryAttention"]) == "product"
    assert has_steps(["Add", "Round"]) and not has_steps(["Add"])


def test_results_near_zero_are_not_magnified():
    assert not compare(as32(1e-40, 0.0), np.array([0.0, 0.0]), None, 1e-2).problem


def test_a_sum_that_cancels_may_be_off_as_far_as_it_moves_with_the_last_place_of_its_inputs():
    """Nothing but roundings is left of the second output: it is right at their size, and wrong beyond it."""
    references = [np.array([1.0, -1.0]), np.array([2e-9, -1e-9, 3e-9, 1e-9])]
    nearby = [np.array([1.0 + 1e-7, -1.0]), np.array([9e-8, -7e-8, 5e-8, -8e-8])]
    stock = [as32(1.0, -1.0), as32(2e-9, -1e-9, 3e-9, 1e-9)]

    def problem(*noise: float) -> str:
        results = [as32(1.0, -1.0), as32(*noise)]
        return compare_all(results, references, stock, "product", moved=lambda: nearby).problem

    assert not problem(3e-7, -2e-7, 1e-7, 4e-7)
    assert "output 1" in problem(3e-5, -2e-5, 1e-5, 4e-5)
    assert compare_all([as32(1.0, -1.01), stock[1]], references, stock, "product", moved=lambda: nearby).problem


def test_one_element_may_be_off_as_far_as_it_moves_itself():
    """The logarithm of an energy of which little is left: others of the output keep all their digits."""
    reference = [np.array([-3.0, -15.8, 2.0, 1.0])]
    nearby = [reference[0] + [1e-7, 6e-5, 1e-7, -1e-7]]

    def problem(*errors: float, steps: bool = False) -> str:
        results = [(reference[0] + errors).astype(np.float32)]
        return compare_all(results, reference, None, "product", steps=steps, moved=lambda: nearby).problem

    assert not problem(0, 6e-4, 0, 0)
    assert problem(0, 2e-3, 0, 0) and problem(6e-4, 6e-4, 0, 0)
    assert problem(0, 6e-4, 0, 0, steps=True), "a step would allow anything"


def test_inputs_are_moved_only_when_an_output_is_off():
    def never() -> list[np.ndarray]:
        raise AssertionError

    assert not compare_all([as32(1.0, 2.0)], [np.array([1.0, 2.0])], None, "product", moved=never).problem


@pytest.mark.parametrize(("dtype", "steps"), [("BOOL", False), ("INT64", False), ("FLOAT", True), (None, True)])
def test_only_what_may_be_rounded_can_take_a_step(dtype: str | None, steps: bool):
    kind = None if dtype is None else ir.TensorType(ir.DataType[dtype])
    cast = ir.Node("", "Cast", [ir.Value(name="x", type=kind)], [ir.AttrInt64("to", ir.DataType.INT32)])
    product = ir.Node("", "MatMul", [cast.outputs[0], cast.outputs[0]])
    found = op_types_of([cast, product])
    assert has_steps(found) is steps
    assert op_class(found) == "product"


def test_types_that_the_file_does_not_tell_follow_from_the_ops():
    ids = ir.Value(name="ids", type=ir.TensorType(ir.DataType.INT32))
    axes = ir.Value(name="axes", const_value=ir.tensor(np.array([1])))
    wide = ir.Node("", "Unsqueeze", [ids, axes])
    same = ir.Node("", "Equal", [wide.outputs[0], ids])
    hot = ir.Node("", "Cast", [same.outputs[0]], [ir.AttrInt64("to", ir.DataType.FLOAT)])
    size = ir.Node("", "Cast", [ir.Node("", "Shape", [hot.outputs[0]]).outputs[0]], [ir.AttrInt64("to", 6)])
    order = [wide, same, hot, size.inputs[0].producer(), size]  # pyright: ignore[reportOptionalMemberAccess]
    assert not has_steps(op_types_of(node for node in order if node is not None))
    tanh = ir.Node("", "Tanh", [hot.outputs[0]])
    assert has_steps(op_types_of([wide, same, hot, tanh, ir.Node("", "Equal", [tanh.outputs[0], tanh.outputs[0]])]))


def test_all_outputs_that_are_wrong_are_named() -> None:
    right, wrong = np.ones(4, np.float32), np.full(4, 2.0, np.float32)
    found = compare_all([right, wrong, right, wrong], [right.astype(np.float64)] * 4, None, "product")
    assert found.failing == (1, 3) and found.problem.startswith("output 1:")
    assert compare_all([right], [right, right], None, "product").failing == (), "no single output's problem"
