"""numpy -> Arrow: one row of an array is one cell of a column.

Input: arrays whose first axis counts rows. Output: Arrow arrays. Invariant: a fixed axis becomes a fixed-size list, an
axis that varies a list; a dtype changes only where Arrow has none for it, to one that keeps every value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from smelt.frontends.batch.packages import package

Array = npt.NDArray[Any]
_REGISTERED: Final = 2  # `dtype.isbuiltin` of a type that another package brings


def value_type(dtype: np.dtype[Any]) -> Any:
    """The Arrow type of one element."""
    pa = package("pyarrow")
    return pa.string() if dtype.kind in "OUS" else pa.from_numpy_dtype(stored_dtype(dtype))


def stored_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """bfloat16, float8 and 4-bit integers are no types of Arrow: a wider one keeps every value."""
    if dtype.isbuiltin != _REGISTERED:
        return dtype
    return next(np.dtype(wider) for wider in (np.int8, np.uint8, np.float32) if np.can_cast(dtype, wider))


def cell_type(dtype: np.dtype[Any], dims: Sequence[int | None]) -> Any:
    """The Arrow type of one cell: `dims` are the axes after the first, None for one that varies."""
    pa = package("pyarrow")
    kind = value_type(dtype)
    for dim in reversed(dims):
        kind = pa.list_(kind) if dim is None else pa.list_(kind, dim)
    return kind


def to_arrow(values: Array, missing: Array | None = None) -> Any:
    """A dense array. `missing` marks rows that are null."""
    pa = package("pyarrow")
    flat = np.ascontiguousarray(values).reshape(-1)
    flat = flat.astype(stored_dtype(flat.dtype), copy=False)
    array = pa.array(flat.tolist() if flat.dtype.kind == "O" else flat, value_type(flat.dtype))
    if values.ndim == 1:
        return _with_nulls(array, missing)
    for axis in range(values.ndim - 1, 0, -1):
        last = axis == 1 and missing is not None and bool(missing.any())
        mask = pa.array(missing) if last else None
        size = values.shape[axis]
        if size == 0:
            count = int(np.prod(values.shape[:axis]))
            array = pa.FixedSizeListArray.from_arrays(array, 0) if count == 0 else _empty_lists(array, count, mask)
        else:
            array = pa.FixedSizeListArray.from_arrays(array, size, mask=mask)
    return array


def _empty_lists(array: Any, count: int, mask: Any) -> Any:
    pa = package("pyarrow")
    nulls = mask.to_pylist() if mask is not None else [False] * count
    return pa.array([None if null else [] for null in nulls], pa.list_(array.type, 0))


def _with_nulls(array: Any, missing: Array | None) -> Any:
    if missing is None or not missing.any():
        return array
    pa = package("pyarrow")
    return package("pyarrow.compute").if_else(pa.array(~missing), array, pa.scalar(None, array.type))


def ragged_to_arrow(rows: Sequence[Array | None], kind: Any) -> Any:
    """Rows of different sizes. `kind` is the Arrow type of a cell; None is a null."""
    pa = package("pyarrow")
    inner = kind.value_type
    if pa.types.is_nested(inner) and not all(row is None or row.ndim == 1 or _fixed(inner, row) for row in rows):
        return pa.array(
            [None if row is None else row.astype(stored_dtype(row.dtype), copy=False).tolist() for row in rows], kind
        )
    lengths = [0 if row is None else len(row) for row in rows]
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    present = [row for row in rows if row is not None]
    if not present:
        return pa.nulls(len(rows), kind)
    values = to_arrow(np.concatenate(present)).cast(inner)
    mask = pa.array([row is None for row in rows]) if len(present) < len(rows) else None
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=kind, mask=mask)


def _fixed(kind: Any, row: Array) -> bool:
    """Whether the axes after the first are all of the type's own sizes."""
    pa = package("pyarrow")
    for size in row.shape[1:]:
        if not pa.types.is_fixed_size_list(kind) or kind.list_size != size:
            return False
        kind = kind.value_type
    return True
