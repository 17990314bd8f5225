"""Convolutions.

Input: calls. Output: values. Invariant: one Conv or ConvTranspose each; inputs without a batch axis get one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from smelt.export.aten.integer_windows import Window, convolved, spread
from smelt.export.call import Call
from smelt.export.dtypes import is_integer
from smelt.export.records import Refused
from smelt.export.registry import converter

Value = ir.Value


@converter("aten::convolution", "aten::_convolution", "aten::convolution_overrideable")
def convolution(
    call: Call, input: Value, weight: Value, bias: Value | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Value:  # fmt: skip
    return _convolved(call, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


@converter("aten::conv1d", "aten::conv2d", "aten::conv3d")
def conv(
    call: Call, input: Value, weight: Value, bias: Value | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Value:  # fmt: skip
    return _convolved(call, input, weight, bias, stride, padding, dilation, False, 0, groups)


@converter("aten::conv1d.padding", "aten::conv2d.padding", "aten::conv3d.padding")
def conv_padding(
    call: Call, input: Value, weight: Value, bias: Value | None = None, stride: Any = 1, padding: str = "valid",
    dilation: Any = 1, groups: int = 1,
) -> Value:  # fmt: skip
    if padding == "valid":
        return _convolved(call, input, weight, bias, stride, 0, dilation, False, 0, groups)
    spatial = call.rank(weight) - 2
    kernel = [call.dim(weight, axis + 2) for axis in range(spatial)]
    totals = [d * (k - 1) for d, k in zip(_each(dilation, spatial), kernel, strict=True)]
    pads = [total // 2 for total in totals]
    after = [total - total // 2 for total in totals]
    return _convolved(call, input, weight, bias, stride, [*pads, *after], dilation, False, 0, groups)


@converter("aten::conv_transpose1d", "aten::conv_transpose2d.input", "aten::conv_transpose3d.input")
def conv_transpose(
    call: Call, input: Value, weight: Value, bias: Value | None = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Value:  # fmt: skip
    return _convolved(call, input, weight, bias, stride, padding, dilation, True, output_padding, groups)


def _each(numbers: Any, spatial: int) -> list[int]:
    """One number per spatial axis, from one for all."""
    items = [numbers] if isinstance(numbers, int) else list(numbers)
    if not all(isinstance(item, int) for item in items):
        raise Refused("a stride or padding known only at run time")
    return items * spatial if len(items) == 1 else items


def _convolved(
    call: Call, x: Value, weight: Value, bias: Value | None, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> Value:  # fmt: skip
    spatial = call.rank(weight) - 2
    batched = call.rank(x) == spatial + 2
    value = x if batched else call.op("Unsqueeze", x, [0])
    pads = _each(padding, spatial)
    attributes: dict[str, Any] = {
        "strides": _each(stride, spatial), "pads": pads if len(pads) == 2 * spatial else pads * 2,
        "dilations": _each(dilation, spatial), "group": groups,
    }  # fmt: skip
    kernel = [call.dim(weight, axis + 2) for axis in range(spatial)]
    if all(isinstance(size, int) for size in kernel):
        attributes["kernel_shape"] = kernel
    if transposed:
        attributes["output_padding"] = _each(output_padding, spatial)
    if is_integer(x.dtype):
        result = _of_integers(call, value, weight, bias, attributes, groups)
    else:
        result = call.op("ConvTranspose" if transposed else "Conv", value, weight, bias, **attributes)
    return result if batched else call.op("Squeeze", result, [0])


def _of_integers(
    call: Call, x: Value, weight: Value, bias: Value | None, attributes: dict[str, Any], groups: int
) -> Value:
    spatial = len(attributes["strides"])
    before, after = attributes["pads"][:spatial], attributes["pads"][spatial:]
    kernel = _each(attributes.get("kernel_shape", [None]), spatial)
    window = Window(kernel, attributes["strides"], attributes["dilations"], before)
    extra = attributes.get("output_padding")
    if extra is None:
        return convolved(call, x, weight, bias, window, after, groups)
    result = spread(call, x, weight, window, extra, groups)
    return result if bias is None else call.op("Add", result, call.op("Reshape", bias, [-1, *[1] * spatial]))
