"""Running products, maxima, minima and sums of exponentials along an axis.

Input: calls over an axis of known length. Output: values (and the places they came from). Invariant: doubling steps:
after step k an element has met the 2^k elements up to itself, so a chain of n elements takes log2(n) steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from smelt.export.call import Call
from smelt.export.dtypes import BOOL, INT64, is_float
from smelt.export.records import Refused
from smelt.export.registry import converter

Value = ir.Value
LONGEST = 1 << 16
Meeting = Callable[[list[Value], list[Value]], list[Value]]
"""(earlier elements, later elements) -> what they make together"""


def _length(call: Call, value: Value, axis: int) -> int:
    size = call.dim(value, axis)
    if not isinstance(size, int) or size > LONGEST:
        raise Refused("a running reduction along an axis whose length is not known, or very long")
    return size


def _part(call: Call, value: Value, axis: int, start: int, end: int) -> Value:
    return call.op("Slice", value, [start], [end], [axis])


def _scanned(call: Call, values: Sequence[Value], axis: int, meet: Meeting) -> list[Value]:
    size = _length(call, values[0], axis)
    current = list(values)
    step = 1
    while step < size:
        head = [_part(call, value, axis, 0, step) for value in current]
        earlier = [_part(call, value, axis, 0, size - step) for value in current]
        later = [_part(call, value, axis, step, size) for value in current]
        met = meet(earlier, later)
        current = [call.op("Concat", first, rest, axis=axis) for first, rest in zip(head, met, strict=True)]
        step *= 2
    return current


def _extreme(call: Call, self: Value, dim: int, op_type: str) -> list[Value]:
    if not call.rank(self):
        return [self, call.constant(0, INT64)]
    axis = call.axis(self, dim)
    work = self if self.dtype != BOOL else call.cast(self, ir.DataType.INT32)
    shape = [1] * call.rank(self)
    shape[axis] = _length(call, self, axis)
    places = call.constant(np.arange(shape[axis]).reshape(shape), INT64)
    places = call.expand(places, call.all_dims(self))
    floating = is_float(self.dtype)

    def meet(earlier: list[Value], later: list[Value]) -> list[Value]:
        newer = call.op(op_type, later[0], earlier[0])
        if floating:
            newer = call.op("Or", newer, call.op("IsNaN", later[0]))
            # A number does not replace a NaN.
            newer = call.op(
                "And", newer, call.op("Or", call.op("IsNaN", later[0]), call.op("Not", call.op("IsNaN", earlier[0])))
            )
        return [call.op("Where", newer, new, old) for new, old in zip(later, earlier, strict=True)]

    values, indices = _scanned(call, [work, places], axis, meet)
    return [call.cast(values, self.dtype), indices]


@converter("aten::cummax")
def cummax(call: Call, self: Value, dim: int) -> list[Value]:
    return _extreme(call, self, dim, "GreaterOrEqual")


@converter("aten::cummin")
def cummin(call: Call, self: Value, dim: int) -> list[Value]:
    return _extreme(call, self, dim, "LessOrEqual")


@converter("aten::cumprod")
def cumprod(call: Call, self: Value, dim: int, dtype: Any = None) -> Value:
    value = call.cast(self)
    if not call.rank(self):
        return value

    def meet(earlier: list[Value], later: list[Value]) -> list[Value]:
        return [call.op("Mul", earlier[0], later[0])]

    return _scanned(call, [value], call.axis(self, dim), meet)[0]


@converter("aten::logcumsumexp")
def logcumsumexp(call: Call, self: Value, dim: int) -> Value:
    if not call.rank(self):
        return self
    lowest = call.scalar(-math.inf)

    def meet(earlier: list[Value], later: list[Value]) -> list[Value]:
        top, low = call.op("Max", earlier[0], later[0]), call.op("Min", earlier[0], later[0])
        gap = call.op("Where", call.op("Equal", top, low), call.scalar(0.0), call.op("Sub", low, top))
        both = call.op("Add", top, call.op("Log", call.op("Add", call.op("Exp", gap), call.scalar(1.0))))
        return [call.op("Where", call.op("Equal", top, lowest), lowest, both)]

    return _scanned(call, [self], call.axis(self, dim), meet)[0]
