"""Gathers, one-hot and reversed sequences: the ONNX suite, negative and run-time indices, and what is refused."""

import cases
import numpy as np
import pytest
import shapes

X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    "case",
    [c for op in ("Gather", "GatherElements", "GatherND") for c in cases.backend_cases(op)],
    ids=lambda c: c.name,
)
def test_backend_case_is_right(case: cases.Case) -> None:
    cases.run_case(case)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather(axis: int, dtype: type) -> None:
    for indices in (np.array(1), np.array(-1), np.array([2, -3, 0]), np.array([[1], [2]])):
        inputs = [X, indices.astype(dtype)]
        shapes.check_operands("Gather", inputs, [1], attrs={"axis": axis})


def test_index_beyond_a_free_size_fails_its_requirement() -> None:
    for index in (3, -4):
        with pytest.raises(AssertionError, match="out of range"):
            cases.evaluate(cases.node_model("Gather", [X, np.array(index)], constants=[1], free=True), [X])


def test_index_read_from_data_is_checked() -> None:
    with pytest.raises(IndexError):
        cases.evaluate(cases.node_model("Gather", [X, ints(0, 3)]), [X, ints(0, 3)])


@pytest.mark.parametrize("axis", [0, -1])
def test_gather_elements(axis: int) -> None:
    indices = np.array([[0, -1, 2], [1, 0, -3]], np.int64)
    shapes.check_operands("GatherElements", [X[0, :3, :3], indices], [1], attrs={"axis": axis}, against=("ort",))


@pytest.mark.parametrize("batch", [0, 1])
def test_gather_nd(batch: int) -> None:
    indices = np.array([[[0, 1], [2, -1]], [[1, 1], [0, 0]], [[-1, 2], [2, 3]]], np.int64)
    attrs = {"batch_dims": batch}
    shapes.check_operands("GatherND", [X, indices], [1], opset=13, attrs=attrs, against=("ort",))


def test_gather_nd_of_run_time_indices_needs_their_length() -> None:
    indices = np.array([[0, 1], [2, -1]], np.int64)
    cases.compare(cases.evaluate(cases.node_model("GatherND", [X, indices]), [X, indices]), [X[[0, 2], [1, -1]]])
    assert "length of an index" in cases.refuses("GatherND", [X, indices], free=True)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(axis: int) -> None:
    indices = np.array([[0, 3, -1], [7, -5, 2]], np.int64)
    inputs = [indices, np.array(5, np.int64), np.array([2.5, 7], np.float32)]
    shapes.check_operands("OneHot", inputs, [1, 2], attrs={"axis": axis}, against=("ort",))


@pytest.mark.parametrize("time", [0, 1])
def test_reverse_sequence(time: int) -> None:
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    attrs = {"time_axis": time, "batch_axis": 1 - time}
    cases.check_node("ReverseSequence", [x, ints(1, 2, 3, 4)], attrs=attrs)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "reason"),
    [
        ("Gather", [X, ints(3)], {}, "out of range"),
        ("Gather", [X, ints(0, -4)], {}, "out of range"),
        ("Gather", [X, ints(0)], {"axis": 3}, "out of range"),
        ("GatherElements", [X, ints(0)], {}, "rank"),
        ("GatherElements", [X, np.full((1, 1, 1), 9)], {"axis": 1}, "out of range"),
        ("GatherND", [X, np.zeros((2, 4), np.int64)], {}, "length of an index"),
        ("GatherND", [X, np.zeros((2, 1), np.int64)], {"batch_dims": 2}, "batch_dims"),
        ("OneHot", [ints(0), np.array(0), np.array([0.0, 1.0])], {}, "depth"),
        ("ReverseSequence", [X[0], ints(1, 1)], {"time_axis": 0, "batch_axis": 0}, "axes"),
    ],
)
def test_impossible_node_is_refused(op: str, inputs: list[np.ndarray], attrs: dict[str, int], reason: str) -> None:
    assert reason in cases.refuses(op, inputs, constants=range(1, len(inputs)), attrs=attrs)
