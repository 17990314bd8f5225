"""Shape, Size, constants, ranges and triangles: the ONNX suite, all forms of attributes, and what is refused."""

import cases
import numpy as np
import pytest
import shapes
from onnx import helper, numpy_helper

OPS = ("Shape", "Size", "Constant", "ConstantOfShape", "Trilu")


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize("case", [c for op in OPS for c in cases.backend_cases(op)], ids=lambda c: c.name)
def test_backend_case_is_right(case: cases.Case) -> None:
    cases.run_case(case)


@pytest.mark.parametrize(("start", "end"), [(0, 3), (1, -1), (-2, 9), (2, 1), (-9, 2)])
def test_shape_of_some_axes(start: int, end: int) -> None:
    cases.check_node("Shape", [np.zeros((2, 3, 4), np.float32)], attrs={"start": start, "end": end})


@pytest.mark.parametrize(
    "attrs",
    [
        {"value_int": -3}, {"value_ints": [1, 2]}, {"value_float": 2.5}, {"value_floats": [0.1, -1.0, 0.1]},
        {"value": numpy_helper.from_array(np.arange(6, dtype=np.int8).reshape(2, 3))},
        {"value": numpy_helper.from_array(np.array([True, False]))},
        {"value": numpy_helper.from_array(np.array([0.0, -0.0, np.nan, np.inf]))},
        {"value": numpy_helper.from_array(np.zeros((0, 2), np.float32))},
    ],
)  # fmt: skip
def test_constant(attrs: dict[str, object]) -> None:
    made = cases.check_node("Constant", [], attrs=attrs)
    if "value" in attrs:
        want = numpy_helper.to_array(attrs["value"])
        np.testing.assert_array_equal(np.signbit(made[0].astype(float)), np.signbit(want.astype(float)))


def test_constant_of_text_is_refused() -> None:
    assert "text" in cases.refuses("Constant", [], attrs={"value_string": "a"})


@pytest.mark.parametrize("value", [np.array([3], np.int32), np.array([True]), np.array([-1.5], np.float64), None])
def test_constant_of_shape(value: np.ndarray | None) -> None:
    attrs = {} if value is None else {"value": numpy_helper.from_array(value)}
    for shape in ((2, 3), (0, 4), ()):
        want = np.full(shape, 0 if value is None else value[0], np.float32 if value is None else value.dtype)
        shapes.check_operands("ConstantOfShape", [ints(*shape)], [0], attrs=attrs, expected=[want])


RANGES = [(0, 5, 1), (2, 11, 3), (10, 3, -2), (3, 3, 1), (5, 1, 1), (1, 5, -1), (-4, 4, 5)]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_range_of_integers(dtype: type) -> None:
    for bounds in RANGES:
        inputs = [np.array(v, dtype) for v in bounds]
        shapes.check_operands("Range", inputs, [0, 1, 2], opset=11)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_range_of_floats(dtype: type) -> None:
    for bounds in ((0, 1, 0.25), (1.5, -2, -0.5), (0, 1, 0.1), (2, 1, 1)):
        cases.check_node("Range", [np.array(v, dtype) for v in bounds], constants=[0, 1, 2], opset=11, against=("ort",))


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("offset", [-9, -1, 0, 2, 9])
def test_trilu_with_offset(upper: int, offset: int) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    shapes.check_operands("Trilu", [x, np.array(offset)], [1], attrs={"upper": upper})


def test_trilu_drops_what_is_not_a_number() -> None:
    x = np.full((3, 3), np.nan, np.float32)
    cases.check_node("Trilu", [x], attrs={"upper": 0})


@pytest.mark.parametrize(
    ("op", "inputs", "reason"),
    [
        ("ConstantOfShape", [ints(2, -1)], "negative"),
        ("Range", [np.array(0), np.array(3), np.array(0)], "step 0"),
        ("Range", [np.array(0.0), np.array(np.inf), np.array(1.0)], "endless"),
        ("Range", [np.array(0.0), np.array(1e30), np.array(1e-30)], "range of"),
        ("Trilu", [np.zeros(3, np.float32)], "rank"),
    ],
)
def test_impossible_node_is_refused(op: str, inputs: list[np.ndarray], reason: str) -> None:
    fixed = [] if op == "Trilu" else range(len(inputs))
    assert reason in cases.refuses(op, inputs, constants=fixed)


def test_large_constant_stays_in_the_model() -> None:
    value = helper.make_tensor("c", 1, [100], np.arange(100, dtype=np.float32))
    assert "stays in the model" in cases.refuses("Constant", [], attrs={"value": value})
