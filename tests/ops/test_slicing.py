"""Slice, Pad and CenterCropPad against the ONNX suite and numpy, with bounds known, free and given at run time."""

import itertools

import cases
import numpy as np
import pytest
import shapes

X = np.arange(30, dtype=np.float32).reshape(5, 6)
FAR = 2**63 - 1


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    "case", [c for op in ("Slice", "Pad", "CenterCropPad") for c in cases.backend_cases(op)], ids=lambda c: c.name
)
def test_backend_case_is_right(case: cases.Case) -> None:
    cases.run_case(case)


BOUNDS = [0, 1, 4, 5, 99, FAR, -1, -3, -5, -6, -FAR]


@pytest.mark.parametrize("run_time", [False, True])
@pytest.mark.parametrize("step", [1, 2, 7, -1, -2])
def test_every_combination_of_bounds(step: int, run_time: bool) -> None:
    x = np.arange(5, dtype=np.float32)
    for start, end in itertools.product(BOUNDS, BOUNDS):
        begin = min(max(start + 5 if start < 0 else start, 0), 4) if step < 0 else start
        stop = max(end + 5 if end < 0 else end, -1) if step < 0 else end
        want = x[begin : None if stop == -1 and step < 0 else stop : step]
        inputs = [x, ints(start), ints(end), ints(0), ints(step)]
        model = cases.node_model("Slice", inputs, constants=[] if run_time else [1, 2, 3, 4], free=not run_time)
        got = cases.evaluate(model, inputs if run_time else [x])
        np.testing.assert_array_equal(got[0], want, err_msg=f"{start}:{end}:{step}")


def test_slice_agrees_with_ort_backwards_from_before_the_start() -> None:
    cases.check_node("Slice", [X, ints(-99), ints(-FAR), ints(0), ints(-1)], constants=[1, 2, 3, 4], against=("ort",))


def test_slice_of_an_empty_axis() -> None:
    x = np.zeros((0, 3), np.float32)
    for step in (1, -1):
        bounds = [ints(-1), ints(-FAR if step < 0 else FAR), ints(0), ints(step)]
        shapes.check_operands("Slice", [x, *bounds], [1, 2, 3, 4])


def test_slice_by_attributes_before_10() -> None:
    cases.check_node("Slice", [X], opset=9, attrs={"starts": [1, -3], "ends": [99, -1], "axes": [0, 1]})
    cases.check_node("Slice", [X], opset=9, attrs={"starts": [1], "ends": [4]})


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ([X, ints(0), ints(1), ints(2)], "out of range"),
        ([X, ints(0, 0), ints(1, 1), ints(0, -2)], "twice"),
        ([X, ints(0), ints(1, 2)], "length"),
        ([X, ints(0), ints(1), ints(0), ints(0)], "step 0"),
        ([X, ints(0, 0, 0), ints(1, 1, 1)], "out of range"),
    ],
)
def test_impossible_slice_is_refused(inputs: list[np.ndarray], reason: str) -> None:
    assert reason in cases.refuses("Slice", inputs, constants=range(1, len(inputs)))


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 2, 0, 3), (4, 0, 3, 5), (0, 2, 0, 0)])
def test_pad(mode: str, pads: tuple[int, ...]) -> None:
    want = np.pad(X, [(pads[0], pads[2]), (pads[1], pads[3])], mode=mode)
    shapes.check_operands("Pad", [X, ints(*pads)], [1], attrs={"mode": mode}, expected=[want])


@pytest.mark.parametrize("mode", ["reflect", "wrap", "edge"])
def test_border_wider_than_the_input(mode: str) -> None:
    x = np.arange(3, dtype=np.float32)
    want = np.pad(x, [(7, 8)], mode=mode)
    shapes.check_operands("Pad", [x, ints(7, 8)], [1], attrs={"mode": mode}, expected=[want], against=())


def test_negative_pads_crop() -> None:
    shapes.check_operands(
        "Pad", [X, ints(-1, 2, 1, -2)], [1],
        expected=[np.pad(X[1:, :-2], [(0, 1), (2, 0)])],
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.bool_])
def test_pad_value(dtype: type) -> None:
    value = np.array(1, dtype)
    shapes.check_operands("Pad", [X.astype(dtype), ints(1, 0, 0, 2), value], [1, 2])


def test_pad_by_attributes_before_11() -> None:
    cases.check_node("Pad", [X], opset=9, attrs={"pads": [1, 0, 0, 2], "value": 3.5}, against=("ort",))


def test_pad_of_some_axes() -> None:
    shapes.check_operands("Pad", [X, ints(1, 2), None, ints(-1)], [1, 3], opset=18)


@pytest.mark.parametrize(
    ("inputs", "how", "reason"),
    [
        ([X, ints(1, 2)], {}, "pads for"),
        ([X, ints(-3, 0, -3, 0)], {}, "negative"),
        ([X, ints(1, 1, 1, 1)], {"attrs": {"mode": "mirror"}}, "mode"),
        ([X[:0], ints(1, 1, 1, 1)], {"attrs": {"mode": "edge"}}, "empty"),
        ([X, ints(1, 1), None, ints(2)], {"opset": 18}, "out of range"),
    ],
)
def test_impossible_pad_is_refused(inputs: list[np.ndarray], how: dict[str, object], reason: str) -> None:
    assert reason in cases.refuses("Pad", inputs, constants=range(1, len(inputs)), **how)


@pytest.mark.parametrize("sizes", [(3, 8), (8, 3), (5, 6), (2, 9)])
def test_center_crop_pad(sizes: tuple[int, int]) -> None:
    shapes.check_operands("CenterCropPad", [X, ints(*sizes)], [1])
