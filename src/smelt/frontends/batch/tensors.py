"""Arrow columns -> tensors that batches are taken from.

Input: a column without top-level nulls, and a model input's dtype and shape. Output: `Dense`, `Ragged` or `Nested`, and
the rows that cannot be a tensor with the reason of each. Invariant: a value is only changed by a cast that keeps it
exactly, or that the user asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from smelt.base.errors import InputError
from smelt.frontends.batch.packages import package

Array = npt.NDArray[Any]
Dims = Sequence[int | str | None] | None


@dataclass(frozen=True)
class Dense:
    """All rows have the same shape."""

    values: Array

    def lengths(self) -> Array | None:
        return None

    def take(self, rows: Array, length: int) -> Array:
        """A view where the rows follow each other: a copy of large rows costs as much as reading them."""
        del length
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and bool((np.diff(rows) == 1).all()):
            return self.values[int(rows[0]) : int(rows[-1]) + 1]
        return self.values[rows]


@dataclass(frozen=True)
class Ragged:
    """Rows differ in their first axis: row i is values[offsets[i]:offsets[i + 1]]."""

    values: Array
    offsets: Array

    def lengths(self) -> Array:
        return np.diff(self.offsets)

    def take(self, rows: Array, length: int) -> Array:
        """Rows padded with zeros to `length`."""
        sizes = self.lengths()[rows]
        inside = np.arange(length) < sizes[:, None]
        places = (self.offsets[rows][:, None] + np.arange(length))[inside]
        padded = np.zeros((len(rows), length, *self.values.shape[1:]), self.values.dtype)
        padded[inside] = self.values[places]
        return padded


@dataclass(frozen=True)
class Nested:
    """Rows differ in two axes or more: each is a list of lists."""

    rows: tuple[Array, ...]

    def lengths(self) -> Array:
        return np.array([len(row) for row in self.rows], np.int64)

    def take(self, rows: Array, length: int) -> Array:
        chosen = [self.rows[row] for row in _ints(rows)]
        inner = np.max([row.shape[1:] for row in chosen], axis=0)
        padded = np.zeros((len(chosen), length, *inner), chosen[0].dtype)
        for place, row in enumerate(chosen):
            padded[(place, *(slice(size) for size in row.shape))] = row
        return padded


def _ints(rows: Array) -> list[int]:
    return [int(row) for row in rows]


Tensor = Dense | Ragged | Nested
Bad = dict[int, str]


def null_rows(array: Any) -> Array:
    """Rows that are null, or hold a null somewhere."""
    pc, pa = package("pyarrow.compute"), package("pyarrow")
    array = plain(array)
    if not _holds_null(array):
        return np.zeros(len(array), bool)
    missing = pc.is_null(array).to_numpy(zero_copy_only=False)
    if pa.types.is_nested(array.type) and not pa.types.is_struct(array.type):
        inner = null_rows(array.flatten())
        if inner.any():
            parents = pc.list_parent_indices(array).to_numpy(zero_copy_only=False)
            missing = missing.copy()
            missing[parents[inner]] = True
    return missing


def _holds_null(array: Any) -> bool:
    """By counts alone: a mark for each element of a wide row costs as much as preparing it."""
    types = package("pyarrow").types
    if array.null_count or not types.is_nested(array.type) or types.is_struct(array.type):
        return bool(array.null_count)
    return _holds_null(plain(array.flatten()))


def plain(array: Any) -> Any:
    """One array instead of chunks; the storage of an extension type."""
    pa = package("pyarrow")
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
        if isinstance(array, pa.ChunkedArray):  # of no chunks
            array = pa.array([], array.type)
    if isinstance(array.type, pa.DictionaryType):
        return array.dictionary_decode()
    return plain(array.storage) if isinstance(array, pa.ExtensionArray) else array


def tensor_of(array: Any, name: str, dtype: np.dtype[Any] | None, dims: Dims, cast: bool) -> tuple[Tensor, Bad]:
    """`dims` are those of the model input, the batch's among them; None where the model does not tell."""
    tensor = _raw(plain(array))
    trailing = None if dims is None else list(dims[1:])
    tensor, bad = _shaped(tensor, trailing)
    if bad:
        return tensor, bad
    return _cast(tensor, name, dtype, cast)


def _raw(array: Any) -> Tensor:
    pa = package("pyarrow")
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        inner = _even(_raw(plain(array.flatten())))
        if inner is not None:
            return Dense(inner.values.reshape(len(array), kind.list_size, *inner.values.shape[1:]))
        return _nested(array)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _even(_raw(plain(array.flatten())))
        if inner is None:
            return _nested(array)
        sizes = package("pyarrow.compute").list_value_length(array).to_numpy(zero_copy_only=False)
        return Ragged(inner.values, np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return Dense(np.array(array.to_pylist(), dtype=object))
    if pa.types.is_decimal(kind):
        array = array.cast(pa.float64())
    return Dense(array.to_numpy(zero_copy_only=False))


def _even(tensor: Tensor) -> Dense | None:
    """Lists that are all of one length, as one array; None where they are not."""
    if isinstance(tensor, Ragged):
        sizes = tensor.lengths()
        if len(sizes) and (sizes == sizes[0]).all():
            return Dense(tensor.values.reshape(len(sizes), int(sizes[0]), *tensor.values.shape[1:]))
    return tensor if isinstance(tensor, Dense) else None


def _nested(array: Any) -> Nested:
    leaf, depth = array.type, 0
    while hasattr(leaf, "value_type"):
        depth += not package("pyarrow").types.is_dictionary(leaf)
        leaf = leaf.value_type
    dtype = np.dtype(np.float64 if package("pyarrow").types.is_decimal(leaf) else leaf.to_pandas_dtype())
    return Nested(tuple(_padded(cell.as_py(), depth, dtype) for cell in array))


def _padded(lists: Sequence[Any], depth: int, dtype: np.dtype[Any]) -> Array:
    """Lists in lists as one array, shorter ones filled up with zeros."""
    if depth == 1:
        return np.asarray(lists, dtype)
    inner = [_padded(one, depth - 1, dtype) for one in lists]
    sizes = np.max([one.shape for one in inner], axis=0) if inner else [0] * (depth - 1)
    padded = np.zeros((len(inner), *sizes), dtype)
    for place, one in enumerate(inner):
        padded[(place, *(slice(size) for size in one.shape))] = one
    return padded


def _shaped(tensor: Tensor, trailing: list[int | str | None] | None) -> tuple[Tensor, Bad]:
    """Lists of one demanded length become dense; flat lists are reshaped where the model's shape is known."""
    if trailing is None:
        return tensor, {}
    if isinstance(tensor, Nested):
        return tensor, _misshapen([row.shape for row in tensor.rows], trailing)
    fixed = [size for size in trailing if isinstance(size, int)]
    known = len(fixed) == len(trailing)
    if isinstance(tensor, Ragged) and trailing:
        flat = tensor.values.ndim == 1
        wanted = int(np.prod(fixed)) if known and flat else trailing[0]
        if isinstance(wanted, int):
            sizes = tensor.lengths()
            bad = {
                int(row): f"a list of {sizes[row]}, the model takes {wanted}" for row in np.flatnonzero(sizes != wanted)
            }
            if bad:
                return tensor, bad
            tensor = Dense(tensor.values.reshape(len(sizes), wanted, *tensor.values.shape[1:]))
    if isinstance(tensor, Ragged):
        wrong = _misshapen([(1, *tensor.values.shape[1:])], trailing)
        return tensor, {int(row): wrong[0] for row in np.flatnonzero(tensor.lengths() if wrong else 0)}
    shape = tensor.values.shape[1:]
    if known and len(shape) != len(fixed) and int(np.prod(shape)) == int(np.prod(fixed)):
        return Dense(tensor.values.reshape(len(tensor.values), *fixed)), {}
    wrong = _misshapen([shape], trailing)
    return tensor, dict.fromkeys(range(len(tensor.values)), wrong[0]) if wrong else {}


def _misshapen(shapes: Sequence[tuple[int, ...]], trailing: Sequence[int | str | None]) -> Bad:
    """Rows whose lists in lists are of other lengths than the model takes. What an empty list holds has none."""
    demanded = [(axis, size) for axis, size in enumerate(trailing) if isinstance(size, int)]
    bad: Bad = {}
    for row, shape in enumerate(shapes if demanded else ()):
        for axis, size in demanded:
            if axis < len(shape) == len(trailing) and shape[axis] != size and 0 not in shape[:axis]:
                bad[row] = f"{'lists' if axis else 'a list'} of {shape[axis]}, the model takes {size}"
                break
    return bad


def check_cast(source: np.dtype[Any], target: np.dtype[Any] | None, name: str, cast: bool) -> None:
    """Refuse a cast that may lose something by its types alone."""
    if target is None or source == target or source.kind == "O" or cast:
        return
    if source.kind in "iub" and target.kind in "iuf":
        return  # decided by the values
    if not np.can_cast(source, target, "safe"):
        raise InputError(
            "SM-BATCH-005",
            f"column {name!r} is {source}, the model takes {target}",
            hint="--cast (cast=True) converts it, rounding where it must.",
        )


def _cast(tensor: Tensor, name: str, dtype: np.dtype[Any] | None, cast: bool) -> tuple[Tensor, Bad]:
    if isinstance(tensor, Nested):
        cells = [_cast_values(row, name, dtype, cast) for row in tensor.rows]
        bad = {i: why for i, (_, lost, why) in enumerate(cells) if lost.any()}
        return Nested(tuple(values for values, _, _ in cells)), bad
    values, lost, why = _cast_values(tensor.values, name, dtype, cast)
    places = np.flatnonzero(lost.reshape(len(lost), -1).any(axis=1)) if lost.any() else np.empty(0, np.int64)
    if isinstance(tensor, Ragged):
        owners = np.searchsorted(tensor.offsets, places, side="right") - 1
        return Ragged(values, tensor.offsets), {int(row): why for row in owners}
    return Dense(values), {int(row): why for row in places}


def _cast_values(values: Array, name: str, dtype: np.dtype[Any] | None, cast: bool) -> tuple[Array, Array, str]:
    none = np.zeros(1, bool)
    if dtype is None or values.dtype == dtype or values.dtype.kind == "O":
        return values, none, ""
    check_cast(values.dtype, dtype, name, cast)
    with np.errstate(all="ignore"):
        made = values.astype(dtype)
    if cast or (np.can_cast(values.dtype, dtype, "safe") and not _beyond(values.dtype, dtype)):
        return made, none, ""
    with np.errstate(all="ignore"):
        lost = (made.astype(values.dtype) != values) | _wrapped(values, made)
    example = values[lost].flat[0] if lost.any() else ""
    return made, lost, f"column {name!r}: {example} does not fit {dtype}"


def _beyond(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Integers of 64 bits are rounded by every float type, which numpy calls safe."""
    return source.kind in "iu" and source.itemsize == 8 and target.kind == "f"


def _wrapped(values: Array, made: Array) -> Array:
    """Integers that come back as they were and are not what was made of them: of another sign, or rounded up to just
    beyond their type, which the way back cuts off on some CPUs."""
    if made.dtype.kind in "iu":
        return (values < 0) != (made < 0)
    if values.dtype.kind in "iu":
        return made >= float(np.iinfo(values.dtype).max) + 1.0
    return np.zeros(1, bool)
