"""Tensors made from sizes and numbers.

Input: calls. Output: values. Invariant: uninitialized memory (`empty`) is zero, so results never depend on chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from smelt.export.call import Call
from smelt.export.dtypes import BOOL, INT64, is_float
from smelt.export.expressions import one, op, zero
from smelt.export.records import Refused
from smelt.export.registry import converter, declare
from smelt.export.sizes import Dim

Value = ir.Value

declare({
    "aten::zeros_like": op.ConstantOfShape(op.Shape("self"), value=zero),
    "aten::ones_like": op.ConstantOfShape(op.Shape("self"), value=one),
    "aten::empty_like": op.ConstantOfShape(op.Shape("self"), value=zero),
})  # fmt: skip


@converter("aten::full_like")
def full_like(call: Call, self: Value, fill_value: Any) -> Value:
    return call.filled(call.shape_of(self), fill_value)


@converter("aten::fill.Scalar", "aten::fill.Tensor")
def fill(call: Call, self: Value, value: Any) -> Value:
    return call.filled(call.shape_of(self), value)


@converter("aten::full", "aten::new_full")
def full(call: Call, size: Sequence[Dim], fill_value: Any) -> Value:
    return call.filled(size, fill_value)


@converter(
    "aten::zeros", "aten::new_zeros", "aten::empty.memory_format", "aten::new_empty", "aten::empty_permuted",
    "aten::new_empty_strided", "aten::empty_strided", "aten::_efficientzerotensor",
)  # fmt: skip
def zeros(call: Call) -> Value:
    return call.filled(call.arguments["size"], 0)


@converter("aten::ones", "aten::new_ones")
def ones(call: Call) -> Value:
    return call.filled(call.arguments["size"], 1)


@converter("aten::scalar_tensor")
def scalar_tensor(call: Call, s: Any) -> Value:
    return call.scalar(s)


@converter("aten::arange", "aten::arange.start", "aten::arange.start_step", "prims::iota")
def arange(call: Call, start: Any = 0, end: Any = None, step: Any = 1, length: Any = None) -> Value:
    if length is not None:
        end = start + length * step
    if all(isinstance(x, (int, float)) for x in (start, end, step)):
        return _constant_range(call, start, end, step)
    if is_float(call.dtype) or not all(_integral(x) for x in (start, end, step)):
        dtype = ir.DataType.DOUBLE
    else:
        dtype = INT64
    return call.op("Range", *(call.scalar(x, dtype) for x in (start, end, step)))


def _integral(number: Any) -> bool:
    return isinstance(number, int) or bool(getattr(number, "is_integer", False))


def _constant_range(call: Call, start: Any, end: Any, step: Any) -> Value:
    if call.dtype == BOOL:
        raise Refused("a range of bool")
    size = max(0, int(np.ceil((end - start) / step)))
    if size > 1 << 16:
        kind = ir.DataType.DOUBLE if is_float(call.dtype) else INT64
        return call.op("Range", *(call.scalar(x, kind) for x in (start, end, step)))
    return call.constant(start + np.arange(size) * step, call.dtype)


@converter("aten::linspace")
def linspace(call: Call, start: Any, end: Any, steps: int) -> Value:
    if not all(isinstance(x, (int, float)) for x in (start, end, steps)):
        raise Refused("linspace with ends known only at run time")
    return call.constant(np.linspace(start, end, steps), call.dtype)


@converter("aten::eye", "aten::eye.m")
def eye(call: Call, n: Dim, m: Dim = None) -> Value:
    square = call.filled([n, n if m is None else m], 0, INT64 if call.dtype == BOOL else None)
    return call.op("EyeLike", square, dtype=square.dtype)


@converter("aten::tril")
def tril(call: Call, self: Value, diagonal: Dim = 0) -> Value:
    return call.op("Trilu", self, call.scalar(diagonal, INT64), upper=0)


@converter("aten::triu")
def triu(call: Call, self: Value, diagonal: Dim = 0) -> Value:
    return call.op("Trilu", self, call.scalar(diagonal, INT64), upper=1)


@converter("aten::_local_scalar_dense", "aten::item")
def item(call: Call, self: Value) -> Value:
    """A number of the program: an int64, double or bool scalar."""
    kind = BOOL if self.dtype == BOOL else ir.DataType.DOUBLE if is_float(self.dtype) else INT64
    flat = call.reshape(self, []) if call.rank(self) else self
    return call.cast(flat, kind)


@converter("aten::sym_size.int")
def sym_size(call: Call, self: Value, dim: int) -> Value:
    return call.scalar(call.dim(self, dim), INT64)


@converter("aten::sym_numel", "aten::numel")
def numel(call: Call, self: Value) -> Value:
    return call.op("Size", self)
