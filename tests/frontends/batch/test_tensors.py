"""Which rows hold a null, whatever the type around it."""

from __future__ import annotations

import pytest

pa = pytest.importorskip("pyarrow")

from smelt.frontends.batch.tensors import null_rows  # noqa: E402

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
