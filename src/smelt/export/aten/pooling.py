"""Pooling, forward.

Input: calls. Output: values. Invariant: windows that hang over the edge count as torch counts them, or are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from smelt.export.aten.integer_windows import Window, averages, largest
from smelt.export.aten.pooling_gradients import average_matrices
from smelt.export.aten.resampling import applied
from smelt.export.call import Call
from smelt.export.dtypes import INT64, is_integer
from smelt.export.records import Refused
from smelt.export.registry import converter
from smelt.export.sizes import Dim

Value = ir.Value


def _each(numbers: Any, spatial: int) -> list[int]:
    items = [numbers] if isinstance(numbers, int) else list(numbers)
    if not all(isinstance(item, int) for item in items):
        raise Refused("a window known only at run time")
    return items * spatial if len(items) == 1 else items


def _windows(call: Call, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool) -> dict[str, Any]:
    spatial = _spatial(call)
    kernel = _each(kernel_size, spatial)
    return {
        "kernel_shape": kernel, "strides": _each(stride, spatial) if stride else kernel,
        "pads": _each(padding, spatial) * 2, "ceil_mode": int(ceil_mode),
    }  # fmt: skip


def _window(call: Call, kernel_size: Any, stride: Any, padding: Any, dilation: Any) -> Window:
    spatial = _spatial(call)
    kernel = _each(kernel_size, spatial)
    strides = _each(stride, spatial) if stride else kernel
    return Window(kernel, strides, _each(dilation, spatial), _each(padding, spatial))


def _spatial(call: Call) -> int:
    """The number of spatial axes, which the op's name tells."""
    return int(call.name[call.name.index("pool") + 4])


def _batched(call: Call, x: Value, spatial: int) -> tuple[Value, bool]:
    batched = call.rank(x) == spatial + 2
    return (x if batched else call.op("Unsqueeze", x, [0])), batched


@converter("aten::max_pool1d", "aten::max_pool2d", "aten::max_pool3d")
def max_pool(
    call: Call, self: Value, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False,
) -> Value:  # fmt: skip
    spatial = _spatial(call)
    if is_integer(self.dtype):
        return largest(call, self, _window(call, kernel_size, stride, padding, dilation))[0]
    x, batched = _batched(call, self, spatial)
    attributes = _windows(call, kernel_size, stride, padding, ceil_mode)
    result = call.op("MaxPool", x, dilations=_each(dilation, spatial), **attributes)
    return result if batched else call.op("Squeeze", result, [0])


@converter("aten::max_pool2d_with_indices", "aten::max_pool3d_with_indices", "aten::max_pool1d_with_indices")
def max_pool_with_indices(
    call: Call, self: Value, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:  # fmt: skip
    """ONNX counts indices over the whole tensor, torch over one channel."""
    spatial = _spatial(call)
    if is_integer(self.dtype):
        return largest(call, self, _window(call, kernel_size, stride, padding, dilation))
    x, batched = _batched(call, self, spatial)
    attributes = _windows(call, kernel_size, stride, padding, ceil_mode)
    result, flat = call.op("MaxPool", x, dilations=_each(dilation, spatial), outputs=2, **attributes)
    size: Dim = 1
    for axis in range(-spatial, 0):
        size = size * call.dim(self, axis)
    indices = call.op("Mod", flat, call.scalar(size, INT64))
    if batched:
        return result, indices
    return call.op("Squeeze", result, [0]), call.op("Squeeze", indices, [0])


@converter("aten::avg_pool1d", "aten::avg_pool2d", "aten::avg_pool3d")
def avg_pool(
    call: Call, self: Value, kernel_size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Value:  # fmt: skip
    spatial = _spatial(call)
    if is_integer(self.dtype):
        window = _window(call, kernel_size, stride, padding, 1)
        return averages(call, self, window, count_include_pad, divisor_override)
    attributes = _windows(call, kernel_size, stride, padding, ceil_mode)
    if ceil_mode and _hangs_over(call.all_dims(self)[-spatial:], attributes):
        return _averaged(call, self, attributes, count_include_pad, divisor_override)
    attributes["ceil_mode"] = 0
    if divisor_override is not None:
        count_include_pad = True
    x, batched = _batched(call, self, spatial)
    result = call.op("AveragePool", x, count_include_pad=int(count_include_pad), **attributes)
    if divisor_override is not None:
        area = 1
        for size in attributes["kernel_shape"]:
            area *= size
        result = call.op("Mul", result, call.scalar(area / divisor_override))
    return result if batched else call.op("Squeeze", result, [0])


def _hangs_over(sizes: Sequence[Dim], attributes: dict[str, Any]) -> bool:
    """Whether the last window of an axis may go beyond its padded end."""
    windows = zip(sizes, attributes["pads"], attributes["kernel_shape"], attributes["strides"], strict=False)
    return any(not isinstance(size, int) or (size + 2 * pad - k) % s for size, pad, k, s in windows)


def _averaged(call: Call, x: Value, attributes: dict[str, Any], include_pad: bool, divisor: int | None) -> Value:
    """By matrices, which count the elements of windows over the edge as torch does."""
    kernel = attributes["kernel_shape"]
    sizes, pads = call.all_dims(x)[-len(kernel) :], attributes["pads"][: len(kernel)]
    matrices = average_matrices(sizes, kernel, attributes["strides"], pads, True, include_pad, divisor)
    return applied(call, x, matrices, backward=False)


@converter("aten::adaptive_avg_pool1d", "aten::adaptive_avg_pool2d", "aten::adaptive_avg_pool3d")
def adaptive_avg_pool(call: Call, self: Value, output_size: Sequence[Dim]) -> Value:
    spatial = _spatial(call)
    if all(size == 1 for size in output_size):
        return call.op("ReduceMean", self, list(range(-spatial, 0)), keepdims=1)
    have = [call.dim(self, axis) for axis in range(-spatial, 0)]
    if have == list(output_size):
        return self
    kernel = [_divided(size, wanted) for size, wanted in zip(have, output_size, strict=True)]
    x, batched = _batched(call, self, spatial)
    result = call.op("AveragePool", x, kernel_shape=kernel, strides=kernel)
    return result if batched else call.op("Squeeze", result, [0])


def _divided(size: Dim, wanted: Dim) -> int:
    if not isinstance(size, int) or not isinstance(wanted, int) or not wanted or size % wanted:
        raise Refused("adaptive windows of different sizes")
    return size // wanted
