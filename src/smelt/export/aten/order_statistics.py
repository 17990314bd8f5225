"""Medians, modes and the k-th smallest element.

Input: calls. Output: values and their places. Invariant: TopK orders equal elements by place, so it is a stable sort;
a NaN is larger than every number, as in torch.
"""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

from smelt.export.call import Call
from smelt.export.dtypes import BOOL, INT64, is_float
from smelt.export.records import Refused
from smelt.export.registry import converter

Value = ir.Value


def _length(call: Call, value: Value, axis: int) -> int:
    size = call.dim(value, axis)
    if not isinstance(size, int):
        raise Refused("an order statistic along an axis whose length is not known")
    return size


def _ascending(call: Call, value: Value, axis: int) -> tuple[Value, Value]:
    _length(call, value, axis)
    return ordered(call, value, axis, descending=False)


def ordered(call: Call, value: Value, axis: int, *, descending: bool) -> tuple[Value, Value]:
    """All elements in order, a NaN above all numbers, equals as they lie; and where each came from."""
    size, largest = call.vector([call.dim(value, axis)]), int(descending)
    keys = value
    if value.dtype == BOOL:
        keys = call.cast(value, ir.DataType.INT32)
    elif is_float(value.dtype):
        keys = call.op("Where", call.op("IsNaN", value), call.scalar(math.inf, value.dtype), value)
    _, places = call.op("TopK", keys, size, axis=axis, largest=largest, sorted=1, outputs=2)
    if is_float(value.dtype):  # a NaN is above infinity: order once more, by what is a NaN
        unknown = call.cast(call.op("GatherElements", call.op("IsNaN", value), places, axis=axis), ir.DataType.INT32)
        _, again = call.op("TopK", unknown, size, axis=axis, largest=largest, sorted=1, outputs=2)
        places = call.op("GatherElements", places, again, axis=axis)
    return call.op("GatherElements", value, places, axis=axis), places


def _picked(call: Call, value: Value, place: int, axis: int, keepdim: bool) -> Value:
    part = call.op("Slice", value, [place], [place + 1], [axis])
    return part if keepdim else call.op("Squeeze", part, [axis])


@converter("aten::kthvalue")
def kthvalue(call: Call, self: Value, k: Any, dim: int = -1, keepdim: bool = False) -> list[Value]:
    if not call.rank(self):
        return [self, call.constant(0, INT64)]
    if not isinstance(k, int):
        raise Refused("kthvalue of a k that is not known")
    axis = call.axis(self, dim)
    return [_picked(call, each, k - 1, axis, keepdim) for each in _ascending(call, self, axis)]


def _median(call: Call, self: Value, axis: int, keepdim: bool) -> list[Value]:
    """The lower median; a NaN anywhere makes it NaN."""
    size = _length(call, self, axis)
    values, places = _ascending(call, self, axis)
    middle = [_picked(call, each, (size - 1) // 2, axis, keepdim) for each in (values, places)]
    if not is_float(self.dtype):
        return middle
    unknown = call.cast(call.op("IsNaN", self), ir.DataType.INT32)
    first = call.op("ArgMax", unknown, axis=axis, keepdims=int(keepdim))
    any_unknown = call.cast(call.op("ReduceMax", unknown, [axis], keepdims=int(keepdim)), BOOL)
    return [
        call.op("Where", any_unknown, call.scalar(math.nan, self.dtype), middle[0]),
        call.op("Where", any_unknown, first, middle[1]),
    ]


def _nan_median(call: Call, self: Value, axis: int, keepdim: bool) -> list[Value]:
    """The lower median of the numbers among the elements."""
    if not is_float(self.dtype):
        return _median(call, self, axis, keepdim)
    values, places = _ascending(call, self, axis)
    known = call.cast(call.op("Not", call.op("IsNaN", self)), INT64)
    count = call.op("ReduceSum", known, [axis], keepdims=1)
    middle = call.op("Max", call.op("Div", call.op("Sub", count, 1), 2), 0)
    found = [call.op("GatherElements", each, middle, axis=axis) for each in (values, places)]
    return found if keepdim else [call.op("Squeeze", each, [axis]) for each in found]


@converter("aten::median.dim", "aten::nanmedian.dim")
def median_along(call: Call, self: Value, dim: int = -1, keepdim: bool = False) -> list[Value]:
    if not call.rank(self):
        return [self, call.constant(0, INT64)]
    rule = _nan_median if "nan" in call.name else _median
    return rule(call, self, call.axis(self, dim), keepdim)


@converter("aten::median", "aten::nanmedian")
def median(call: Call, self: Value) -> Value:
    if not call.rank(self):
        return self
    flat = call.reshape(self, [math.prod(call.all_dims(self))])
    rule = _nan_median if "nan" in call.name else _median
    return rule(call, flat, 0, False)[0]


@converter("aten::mode")
def mode(call: Call, self: Value, dim: int = -1, keepdim: bool = False) -> list[Value]:
    """The most frequent element, the smallest of several; its last place."""
    if not call.rank(self):
        return [self, call.constant(0, INT64)]
    axis = call.axis(self, dim)
    values, places = _ascending(call, self, axis)
    left, right = call.op("Unsqueeze", values, [axis]), call.op("Unsqueeze", values, [axis + 1])
    same = call.op("Equal", left, right)
    counts = call.op("ReduceSum", call.cast(same, INT64), [axis + 1], keepdims=0)
    best = call.op("ArgMax", counts, axis=axis, keepdims=1)
    frequency = call.op("GatherElements", counts, best, axis=axis)
    last = call.op("Sub", call.op("Add", best, frequency), 1)
    found: list[Any] = [call.op("GatherElements", each, last, axis=axis) for each in (values, places)]
    return found if keepdim else [call.op("Squeeze", each, [axis]) for each in found]
