"""Sums, means, extremes and scans over axes.

Input: calls. Output: values. Invariant: reductions accumulate in the result's type; an empty list of axes means all.
"""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

from smelt.export.call import Call
from smelt.export.dtypes import BOOL, INT64, is_float
from smelt.export.records import Refused
from smelt.export.registry import converter, declare

Value = ir.Value


def _reduced(call: Call, op_type: str, value: Value, dim: Any, keepdim: bool) -> Value:
    axes = call.axes(value, dim)
    return call.op(op_type, value, axes, keepdims=int(keepdim)) if axes else value


def _reduction(op_type: str) -> Any:
    def convert(call: Call, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
        return _reduced(call, op_type, call.cast(self), dim, keepdim)

    return convert


declare({
    "aten::sum": _reduction("ReduceSum"), "aten::sum.dim_IntList": _reduction("ReduceSum"),
    "aten::mean": _reduction("ReduceMean"), "aten::mean.dim": _reduction("ReduceMean"),
    "aten::prod": _reduction("ReduceProd"), "aten::prod.dim_int": _reduction("ReduceProd"),
    "aten::amax": _reduction("ReduceMax"), "aten::amin": _reduction("ReduceMin"),
    "aten::max": _reduction("ReduceMax"), "aten::min": _reduction("ReduceMin"),
})  # fmt: skip


@converter("aten::logsumexp", "aten::special_logsumexp")
def logsumexp(call: Call, self: Value, dim: Any, keepdim: bool = False) -> Value:
    """Steadied by the maximum, where that is finite."""
    value = call.cast(self)
    axes = call.axes(value, dim)
    if not axes:
        return value
    top = call.op("ReduceMax", value, axes, keepdims=1)
    top = call.op("Where", call.op("IsInf", top), call.scalar(0), top)
    total = call.op("ReduceSum", call.op("Exp", call.op("Sub", value, top)), axes, keepdims=int(keepdim))
    return call.op("Add", call.op("Log", total), top if keepdim else call.op("Squeeze", top, axes))


@converter("aten::any", "aten::any.dim", "aten::any.dims")
def any_(call: Call, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return _any(call, call.cast(self, BOOL), dim, keepdim)


@converter("aten::all", "aten::all.dim", "aten::all.dims")
def all_(call: Call, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return call.op("Not", _any(call, call.op("Not", call.cast(self, BOOL)), dim, keepdim))


def _any(call: Call, value: Value, dim: Any, keepdim: bool) -> Value:
    """A sum of ones: unlike a maximum it is right for empty tensors."""
    axes = call.axes(value, dim)
    if not axes:
        return value
    count = call.op("ReduceSum", call.cast(value, ir.DataType.INT32), axes, keepdims=int(keepdim))
    return call.cast(count, BOOL)


@converter("aten::count_nonzero", "aten::count_nonzero.dim_IntList")
def count_nonzero(call: Call, self: Value, dim: Any = None) -> Value:
    return _reduced(call, "ReduceSum", call.cast(call.cast(self, BOOL), INT64), dim, False)


def _arg_extreme(op_type: str) -> Any:
    def convert(call: Call, self: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        if not call.rank(self):
            return call.constant(0, INT64)
        if dim is not None:
            return call.op(op_type, self, axis=call.axis(self, dim), keepdims=int(keepdim))
        flat = call.op("Reshape", self, [-1], shape=[None])
        index = call.op(op_type, flat, axis=0, keepdims=0)
        return call.reshape(index, [1] * call.rank(self)) if keepdim else index

    return convert


declare({"aten::argmax": _arg_extreme("ArgMax"), "aten::argmin": _arg_extreme("ArgMin")})


def _extreme_with_index(reduce: str, arg: str) -> Any:
    def convert(call: Call, self: Value, dim: int, keepdim: bool = False) -> Any:
        if not call.rank(self):
            return self, call.constant(0, INT64)
        axis = call.axis(self, dim)
        return (
            call.op(reduce, self, [axis], keepdims=int(keepdim)),
            call.op(arg, self, axis=axis, keepdims=int(keepdim)),
        )

    return convert


declare({
    "aten::max.dim": _extreme_with_index("ReduceMax", "ArgMax"),
    "aten::min.dim": _extreme_with_index("ReduceMin", "ArgMin"),
})  # fmt: skip


@converter("aten::aminmax")
def aminmax(call: Call, self: Value, dim: int | None = None, keepdim: bool = False) -> Any:
    return _reduced(call, "ReduceMin", self, dim, keepdim), _reduced(call, "ReduceMax", self, dim, keepdim)


@converter("aten::cumsum")
def cumsum(call: Call, self: Value, dim: int) -> Value:
    value = call.cast(self)
    return call.op("CumSum", value, call.constant(call.axis(self, dim), INT64)) if call.rank(self) else value


def _variance(call: Call, self: Value, dim: Any, correction: Any, keepdim: bool) -> tuple[Value, Value]:
    """Two passes: the mean, then the mean square distance from it."""
    axes = call.axes(self, dim)
    if not axes or not is_float(self.dtype):
        raise Refused("the variance of a single number or of integers")
    if any(call.dim(self, axis) == 0 for axis in axes):
        unknown = call.filled(call.dims, math.nan)
        return unknown, unknown
    mean = call.op("ReduceMean", self, axes, keepdims=1)
    distance = call.op("Sub", self, mean)
    total = call.op("ReduceSum", call.op("Mul", distance, distance), axes, keepdims=int(keepdim))
    count: Any = 1
    for axis in axes:
        count = count * call.dim(self, axis)
    freedom = call.op("Max", call.scalar(count - (1 if correction is None else correction), self.dtype), 0)
    return call.op("Div", total, freedom), mean if keepdim else call.op("Squeeze", mean, axes)


@converter("aten::var", "aten::var.dim", "aten::var.correction")
def var(
    call: Call, self: Value, dim: Any = None, correction: Any = 1, keepdim: bool = False, unbiased: bool = True
) -> Value:
    return _variance(call, self, dim, correction if unbiased else 0, keepdim)[0]


@converter("aten::std", "aten::std.dim", "aten::std.correction")
def std(
    call: Call, self: Value, dim: Any = None, correction: Any = 1, keepdim: bool = False, unbiased: bool = True
) -> Value:
    return call.op("Sqrt", _variance(call, self, dim, correction if unbiased else 0, keepdim)[0])


@converter("aten::var_mean.correction", "aten::var_mean", "aten::var_mean.dim")
def var_mean(
    call: Call, self: Value, dim: Any = None, correction: Any = 1, keepdim: bool = False, unbiased: bool = True
) -> Any:
    return _variance(call, self, dim, correction if unbiased else 0, keepdim)


@converter("aten::std_mean.correction", "aten::std_mean", "aten::std_mean.dim")
def std_mean(
    call: Call, self: Value, dim: Any = None, correction: Any = 1, keepdim: bool = False, unbiased: bool = True
) -> Any:
    variance, mean = _variance(call, self, dim, correction if unbiased else 0, keepdim)
    return call.op("Sqrt", variance), mean


@converter("aten::linalg_vector_norm")
def linalg_vector_norm(
    call: Call,
    self: Value,
    ord: float = 2,
    dim: Any = None,
    keepdim: bool = False,
) -> Value:
    value = call.cast(self)
    if ord == 2:
        return _reduced(call, "ReduceL2", value, dim, keepdim) if call.axes(value, dim) else call.op("Abs", value)
    size = call.op("Abs", value)
    if ord == 1:
        return _reduced(call, "ReduceSum", size, dim, keepdim)
    if ord == float("inf"):
        return _reduced(call, "ReduceMax", size, dim, keepdim)
    if ord == float("-inf"):
        return _reduced(call, "ReduceMin", size, dim, keepdim)
    if ord == 0:
        return _reduced(call, "ReduceSum", call.cast(call.cast(value, BOOL)), dim, keepdim)
    total = _reduced(call, "ReduceSum", call.op("Pow", size, call.scalar(float(ord))), dim, keepdim)
    return call.op("Pow", total, call.scalar(1.0 / ord))
