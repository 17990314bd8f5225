"""Reductions over elements that are sent to the same place.

Input: `scatter_reduce`, `index_reduce`, `put`, `diagonal_scatter`. Output: values. Invariant: a place that nothing was
sent to keeps its element; when the element itself is not to take part, it is first replaced by what changes nothing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from smelt.export.aten.indexing import scattered
from smelt.export.call import Call
from smelt.export.dtypes import BOOL, INT64, is_float
from smelt.export.records import Refused
from smelt.export.registry import converter

Value = ir.Value
_KINDS = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}


@converter("aten::scatter_reduce.two")
def scatter_reduce(
    call: Call, self: Value, dim: int, index: Value, src: Value, reduce: str, include_self: bool = True
) -> Value:
    if not call.rank(self):
        parts = [call.reshape(each, [1]) for each in (self, index, src)]
        return call.reshape(_reduced(call, parts[0], 0, parts[1], parts[2], reduce, include_self), [])
    return _reduced(call, self, dim, index, src, reduce, include_self)


@converter("aten::index_reduce")
def index_reduce(
    call: Call, self: Value, dim: int, index: Value, source: Value, reduce: str, include_self: bool = True
) -> Value:
    if not call.rank(self):
        parts = [call.reshape(each, [1]) for each in (self, index, source)]
        return call.reshape(_reduced(call, parts[0], 0, parts[1], parts[2], reduce, include_self), [])
    axis = call.axis(self, dim)
    shape = [1] * call.rank(self)
    shape[axis] = -1
    spread = call.op("Reshape", index, shape)
    spread = call.op("Expand", spread, call.shape_of(source), shape=source.shape)
    return _reduced(call, self, axis, spread, source, reduce, include_self)


def _reduced(call: Call, self: Value, dim: int, index: Value, src: Value, reduce: str, include_self: bool) -> Value:
    kind = _KINDS[reduce]
    if self.dtype == BOOL:
        whole = [call.cast(each, ir.DataType.INT32) for each in (self, src)]
        return call.cast(_reduced(call, whole[0], dim, index, whole[1], reduce, include_self), BOOL)
    ones = call.filled(call.shape_of(src), 1, self.dtype)
    base = self
    if not include_self:
        zeros = call.filled(call.shape_of(self), 0, self.dtype)
        touched = call.cast(scattered(call, zeros, dim, index, ones, "none"), BOOL)
        base = call.op("Where", touched, call.scalar(_neutral(kind, self.dtype), self.dtype), self)
    result = scattered(call, base, dim, index, src, kind)
    if reduce != "mean":
        return result
    start = call.filled(call.shape_of(self), 1 if include_self else 0, self.dtype)
    count = call.op("Max", scattered(call, start, dim, index, ones, "add"), call.scalar(1, self.dtype))
    if is_float(self.dtype):
        return call.op("Div", result, count)
    rest = call.op("Mod", result, count)  # of the divisor's sign, so that the quotient is rounded down
    return call.op("Div", call.op("Sub", result, rest), count)


def _neutral(kind: str, dtype: ir.DataType | None) -> Any:
    if kind in ("add", "mul"):
        return 0 if kind == "add" else 1
    assert dtype is not None
    if is_float(dtype):
        return -math.inf if kind == "max" else math.inf
    limits = np.iinfo(dtype.numpy())
    return limits.min if kind == "max" else limits.max


@converter("aten::put")
def put(call: Call, self: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    flat = call.reshape(self, [math.prod(call.all_dims(self))])
    count = [math.prod(call.all_dims(index))]
    at, what = call.reshape(index, count), call.reshape(source, count)
    kind = "add" if accumulate else "none"
    return call.reshape(scattered(call, flat, 0, at, what, kind), call.dims)


@converter("aten::diagonal_scatter")
def diagonal_scatter(call: Call, self: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    rank = call.rank(self)
    first, second = dim1 % rank, dim2 % rank
    rows, columns = call.dim(self, first), call.dim(self, second)
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise Refused("a diagonal of sizes that are not known")
    down, right = max(-offset, 0), max(offset, 0)
    steps = np.arange(max(min(rows - down, columns - right), 0))
    if not len(steps):
        return self
    places = call.constant(np.stack([steps + down, steps + right], axis=1), INT64)
    others = [axis for axis in range(rank) if axis not in (first, second)]
    order = [first, second, *others]
    front = call.op("Transpose", self, perm=order)
    updates = call.op("Transpose", src, perm=[rank - 2, *range(rank - 2)])
    changed = call.op("ScatterND", front, places, call.cast(updates, self.dtype))
    return call.op("Transpose", changed, perm=[order.index(axis) for axis in range(rank)])


@converter("aten::hypot")
def hypot(call: Call, self: Value, other: Value) -> Value:
    """In double, where squares of float32 neither overflow nor vanish."""
    if call.dtype == ir.DataType.DOUBLE:
        raise Refused("a float64 hypotenuse may overflow on the way")
    a, b = (call.cast(call.cast(each), ir.DataType.DOUBLE) for each in (self, other))
    length = call.op("Sqrt", call.op("Add", call.op("Mul", a, a), call.op("Mul", b, b)))
    infinite = call.op("Or", call.op("IsInf", a), call.op("IsInf", b))
    return call.cast(call.op("Where", infinite, call.scalar(math.inf, ir.DataType.DOUBLE), length))
