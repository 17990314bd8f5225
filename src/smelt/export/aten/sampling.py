"""Elements picked by place: padding by what lies at the edge, sampling on a grid, repetition.

Input: calls. Output: values. Invariant: places outside are moved inside as torch moves them, also where padding is
negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from smelt.export.call import Call
from smelt.export.dtypes import FLOAT, INT64
from smelt.export.records import Refused
from smelt.export.registry import converter

Value = ir.Value


@converter("aten::replication_pad1d", "aten::replication_pad2d", "aten::replication_pad3d")
def replication_pad(call: Call, self: Value, padding: Sequence[Any]) -> Value:
    value, rank = self, call.rank(self)
    for pair in range(len(padding) // 2):
        before, after, axis = padding[2 * pair], padding[2 * pair + 1], rank - 1 - pair
        if before == 0 and after == 0:
            continue
        size = call.dim(self, axis)
        if isinstance(size, int) and isinstance(before, int) and isinstance(after, int):
            places = np.clip(np.arange(-before, size + after), 0, size - 1)
            value = call.op("Gather", value, call.constant(places, INT64), axis=axis)
        else:
            value = _edge_pad(call, value, before, after, axis)
    return value


def _edge_pad(call: Call, value: Value, before: Any, after: Any, axis: int) -> Value:
    if isinstance(before, int) and isinstance(after, int) and min(before, after) < 0:
        raise Refused("negative padding of a size that is not known")
    rank = call.rank(value)
    pads: list[Any] = [0] * (2 * rank)
    pads[axis], pads[rank + axis] = before, after
    return call.op("Pad", value, call.vector(pads), mode="edge")


@converter("aten::grid_sampler_2d", "aten::grid_sampler_3d", "aten::grid_sampler")
def grid_sampler(
    call: Call, input: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Value:
    if call.rank(input) != 4 and call.builder.opset < 20:
        raise Refused("sampling of volumes on a grid, which ONNX knows from opset 20 on")
    names = ("linear", "nearest", "cubic") if call.builder.opset >= 20 else ("bilinear", "nearest", "bicubic")
    return call.op(
        "GridSample", input, call.cast(grid, input.dtype), mode=names[interpolation_mode],
        padding_mode=("zeros", "border", "reflection")[padding_mode], align_corners=int(align_corners),
    )  # fmt: skip


@converter("aten::repeat_interleave.Tensor")
def repeat_interleave(call: Call, repeats: Value, output_size: Any = None) -> Value:
    """The place of each element, as often as it is to be repeated: how many running totals a number has reached."""
    totals = call.op("CumSum", call.cast(repeats, INT64), call.constant(0, INT64))
    if output_size is None:
        count = call.op("ReduceSum", call.cast(repeats, INT64), keepdims=0)
    else:
        count = call.scalar(output_size, INT64)
    steps = call.op("Range", call.constant(0, INT64), count, call.constant(1, INT64))
    reached = call.op("GreaterOrEqual", call.op("Unsqueeze", steps, [1]), totals)
    return call.op("ReduceSum", call.cast(reached, INT64), [1], keepdims=0)


@converter("aten::sinc", "aten::special_sinc")
def sinc(call: Call, self: Value) -> Value:
    angle = call.op("Mul", call.cast(self), call.scalar(np.pi))
    zero = call.op("Equal", angle, call.scalar(0.0))
    safe = call.op("Where", zero, call.scalar(1.0), angle)
    return call.op("Where", zero, call.scalar(1.0), call.op("Div", call.op("Sin", safe), safe))


@converter("aten::angle")
def angle(call: Call, self: Value) -> Value:
    """Of a real number: pi below zero."""
    value = call.cast(self, call.dtype)
    flipped = call.op("Where", call.op("Less", value, call.scalar(0.0)), call.scalar(np.pi), call.scalar(0.0))
    return call.op("Where", call.op("IsNaN", value), value, flipped)


@converter(
    "aten::xlogy.Tensor", "aten::xlogy.Scalar_Self", "aten::xlogy.Scalar_Other", "aten::special_xlogy",
    "aten::special_xlogy.self_scalar", "aten::special_xlogy.other_scalar",
)  # fmt: skip
def xlogy(call: Call) -> Value:
    return _weighted_logarithm(call, shift=0.0)


@converter("aten::special_xlog1py", "aten::special_xlog1py.self_scalar", "aten::special_xlog1py.other_scalar")
def xlog1py(call: Call) -> Value:
    return _weighted_logarithm(call, shift=1.0)


def _weighted_logarithm(call: Call, shift: float) -> Value:
    """x log(y + shift), zero where x is zero, whatever y is, unless y is no number. In double: y may be tiny."""
    work = ir.DataType.DOUBLE if call.dtype in (FLOAT, ir.DataType.DOUBLE) else call.dtype
    x, y = (call.cast(call.cast(call.arguments[name]), work) for name in ("self", "other"))
    product = call.op("Mul", x, call.op("Log", call.op("Add", y, call.scalar(shift, work)) if shift else y))
    zero = call.op("Where", call.op("Equal", x, call.scalar(0.0, work)), call.scalar(0.0, work), product)
    return call.cast(call.op("Where", call.op("IsNaN", y), y, zero))
