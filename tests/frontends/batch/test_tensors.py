"""Columns as tensors: nulls wherever they are, lists in lists, casts that keep every value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")

from smelt.frontends.batch.tensors import Dense, Nested, Ragged, null_rows, tensor_of  # noqa: E402

FLOATS = pa.list_(pa.float32())


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1.0, None, 2.0], pa.float32(), [1]),
        (["a", None], pa.dictionary(pa.int32(), pa.string()), [1]),
        ([[1.0], [], [None], None, [2.0, None]], FLOATS, [2, 3, 4]),
        ([[[1.0]], [[2.0, None]], [], [None]], pa.list_(FLOATS), [1, 3]),
        ([[1.0, 2.0], [None, 2.0], None], pa.list_(pa.float32(), 2), [1, 2]),
        ([["a"], ["b", None]], pa.list_(pa.dictionary(pa.int32(), pa.string())), [1]),
        ([[1.0], [2.0]], FLOATS, []),
        ([], FLOATS, []),
    ],
)
def test_rows_with_nulls(values: list[object], kind: object, expected: list[int]):
    array = pa.array(values, kind)
    assert null_rows(array).nonzero()[0].tolist() == expected
    chunks = pa.chunked_array([array, array])
    assert null_rows(chunks).nonzero()[0].tolist() == [*expected, *(row + len(array) for row in expected)]


def test_a_null_outside_of_a_slice_is_no_null_of_it():
    array = pa.array([[None], [1.0, 2.0], [3.0], None], FLOATS)
    assert not null_rows(array.slice(1, 2)).any()
    assert null_rows(array.slice(1)).tolist() == [False, False, True]


def lists_of(kind: Any, depth: int) -> Any:
    for _ in range(depth):
        kind = pa.list_(kind)
    return kind


def taken(values: Any, kind: Any, dtype: Any, dims: list[int | str] | None) -> tuple[Any, dict[int, str]]:
    tensor, bad = tensor_of(pa.array(values, kind), "c", np.dtype(dtype), dims, False)
    sizes = tensor.lengths()
    longest = 0 if sizes is None else int(sizes.max(initial=0))
    return (tensor, tensor.take(np.arange(len(values)), longest)), bad


@pytest.mark.parametrize("shape", [(3,), (2, 3), (4, 4, 3), (2, 1, 3, 2)])
@pytest.mark.parametrize("demanded", [True, False])
def test_lists_in_lists_of_one_shape_are_one_array(shape: tuple[int, ...], demanded: bool):
    images = np.arange(5 * np.prod(shape)).reshape(5, *shape).astype(np.uint8)
    dims = ["n", *(shape if demanded else "abcd"[: len(shape)])]
    (tensor, made), bad = taken(images.tolist(), lists_of(pa.uint8(), len(shape)), np.uint8, dims)
    assert not bad and isinstance(tensor, Dense if demanded else Ragged)
    np.testing.assert_array_equal(made, images)


def test_lists_that_differ_in_every_axis_are_padded_in_every_axis():
    cells = [[[[1, 2], [3]], [[4]]], [], [[[5]], [[6], [7, 8, 9]], [[]]]]
    (tensor, made), bad = taken(cells, lists_of(pa.int32(), 3), np.int32, ["n", "a", "b", "c"])
    assert isinstance(tensor, Nested) and not bad and made.shape == (3, 3, 2, 3)
    for place in np.ndindex(made.shape):
        found: Any = cells
        for index in place:
            found = found[index] if isinstance(found, list) and index < len(found) else 0
        assert made[place] == found


def test_lists_of_another_shape_than_the_model_takes_are_failed_rows():
    kind, dims = lists_of(pa.float32(), 3), ["n", "a", 2, 3]
    right, wrong = np.zeros((2, 2, 3)).tolist(), np.zeros((2, 2, 4)).tolist()
    assert taken([right, wrong, []], kind, np.float32, dims)[1] == {1: "lists of 4, the model takes 3"}
    assert taken([wrong, [], wrong], kind, np.float32, dims)[1] == dict.fromkeys(
        (0, 2), "lists of 4, the model takes 3"
    )
    assert taken([wrong], kind, np.float32, ["n", 2, 2, 3])[1] == {0: "lists of 4, the model takes 3"}
    assert taken([right], kind, np.float32, ["n", 5, 2, 3])[1] == {0: "a list of 2, the model takes 5"}


@pytest.mark.parametrize(
    ("source", "values", "target", "lost"),
    [
        ("uint64", [7, 2**63, 2**64 - 1], "int64", {1, 2}),
        ("int64", [7, -1, -(2**63)], "uint64", {1, 2}),
        ("int64", [-1, 255, 256], "uint8", {0, 2}),
        ("int8", [-1, 127, -128], "uint8", {0, 2}),
        ("uint8", [127, 128], "int8", {1}),
        ("int32", [-1, 5], "uint32", {0}),
        ("uint16", [65535], "int32", set()),
        ("int64", [2**24, 2**24 + 1, 2**63 - 1], "float32", {1, 2}),
        ("int64", [2**53, 2**53 + 1, 2**63 - 1, -(2**63)], "float64", {1, 2}),
        ("uint64", [2**53 + 1, 2**64 - 1, 2**63], "float64", {0, 1}),
        ("int32", [2**31 - 1, -(2**31)], "float32", {0}),
        ("int16", [32767, -32768], "float32", set()),
    ],
)
def test_a_cast_keeps_every_value_or_fails_its_row(source: str, values: list[int], target: str, lost: set[int]):
    (_, made), bad = taken(values, pa.from_numpy_dtype(np.dtype(source)), target, ["n"])
    assert set(bad) == lost
    assert [int(made[row]) for row in range(len(values)) if row not in lost] == [
        value for row, value in enumerate(values) if row not in lost
    ]
