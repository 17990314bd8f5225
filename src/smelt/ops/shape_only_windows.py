"""Shapes of convolutions and pools.

Input: operands of a node, channels in the second axis. Output: output sizes. Invariant: spatial sizes follow ONNX's
formula for explicit and automatic padding, with free sizes too.
"""

from __future__ import annotations

from collections.abc import Sequence

from smelt.ir.kernel import Ix, Tensor, Unsupported, fn, ix
from smelt.ir.kernel.index import nonneg
from smelt.ops.registry import Call
from smelt.ops.shape_only import MICROSOFT, Sized, shape_rule

AUTO = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


def _kernel(call: Call, weights: Tensor | None) -> list[Ix | int]:
    if call.has("kernel_shape"):
        return list(call.ints("kernel_shape"))
    if weights is None:
        raise Unsupported("attribute kernel_shape is missing")
    return list(weights.shape[2:])


def window_counts(
    call: Call, sizes: Sequence[Ix], kernel: Sequence[Ix | int], *, pool: bool = False, round_up: bool = False
) -> list[Ix]:
    rank = len(sizes)
    strides, dilations = call.ints("strides", (1,) * rank), call.ints("dilations", (1,) * rank)
    pads = call.ints("pads", (0,) * (2 * rank))
    mode = call.str("auto_pad", "NOTSET")
    if not len(kernel) == len(strides) == len(dilations) == rank or len(pads) != 2 * rank or mode not in AUTO:
        raise Unsupported("window attributes do not fit the input's rank")
    if min((*strides, *dilations), default=1) < 1:
        raise Unsupported("a stride or dilation below 1")
    if pool and mode.startswith("SAME") and max(dilations, default=1) > 1:
        raise Unsupported("automatic padding of a dilated pool, which ONNX Runtime counts in its own way")
    if pool and mode.startswith("SAME") and any(not nonneg(ix(k) - s) for k, s in zip(kernel, strides, strict=True)):
        raise Unsupported("automatic padding of a pool below its stride, which ONNX Runtime counts in its own way")
    out: list[Ix] = []
    for axis, (size, taps, stride, dilation) in enumerate(zip(sizes, kernel, strides, dilations, strict=True)):
        if mode.startswith("SAME"):
            out.append((size + (stride - 1)) // stride)
            continue
        begin, end = (0, 0) if mode == "VALID" else (pads[axis], pads[rank + axis])
        span = size + (begin + end) - ((taps - 1) * dilation + 1)
        least = _least_of_pool(span, size, stride) if pool else ix(0)
        out.append(_count(span, size + begin, stride, round_up, least))
    return out


def _least_of_pool(span: Ix, size: Ix, stride: int) -> Ix:
    """A window that exceeds a padded image by less than a stride is one position of a pool: stock ONNX Runtime divides
    toward zero."""
    if nonneg(span - size + (stride - 1)):
        return ix(1)
    return fn("lt", -stride, span)


def _count(span: Ix, extent: Ix, stride: int, round_up: bool, least: Ix) -> Ix:
    """Window positions over `span`; when rounding up, the last one must start inside the input or its left pad."""
    if not round_up:
        return fn("max", (span + stride) // stride, least)
    count = (span + (2 * stride - 1)) // stride
    return fn("max", fn("sel", fn("lt", (count - 1) * stride, extent), count, count - 1), 0)


def _convolved(call: Call, x: Tensor, weights: Tensor) -> tuple[Ix, ...]:
    if x.rank < 3 or weights.rank != x.rank:
        raise Unsupported(f"an input of rank {x.rank} and weights of rank {weights.rank}")
    return (x.shape[0], weights.shape[0], *window_counts(call, x.shape[2:], _kernel(call, weights)))


@shape_rule("Conv")
@shape_rule("FusedConv", domain=MICROSOFT)
def conv(call: Call) -> list[Sized | None]:
    x = call.x()
    return [Sized(x.dtype, _convolved(call, x, call.x(1)))]


@shape_rule("ConvInteger")
def conv_integer(call: Call) -> list[Sized | None]:
    return [Sized("i32", _convolved(call, call.x(), call.x(1)))]


@shape_rule("QLinearConv")
def quantized_conv(call: Call) -> list[Sized | None]:
    return [Sized(call.x(7).dtype, _convolved(call, call.x(0), call.x(3)))]


@shape_rule("ConvTranspose")
def conv_transpose(call: Call) -> list[Sized | None]:
    x, weights = call.x(0), call.x(1)
    channels = weights.shape[1] * call.int("group", 1)
    return [Sized(x.dtype, (x.shape[0], channels, *transposed_sizes(call, x, _kernel(call, weights))))]


def transposed_sizes(call: Call, x: Tensor, kernel: Sequence[Ix | int]) -> list[Ix | int]:
    if call.has("output_shape"):
        return [*call.ints("output_shape")[-(x.rank - 2) :]]
    rank = x.rank - 2
    strides, dilations = call.ints("strides", (1,) * rank), call.ints("dilations", (1,) * rank)
    pads, extra = call.ints("pads", (0,) * (2 * rank)), call.ints("output_padding", (0,) * rank)
    mode = call.str("auto_pad", "NOTSET")
    out: list[Ix | int] = []
    for axis in range(rank):
        size, stride = x.shape[2 + axis], strides[axis]
        if mode.startswith("SAME"):
            if not nonneg((kernel[axis] - 1) * dilations[axis] + ix(1 - stride)):
                raise Unsupported(
                    "automatic padding of windows below their stride, which ONNX Runtime counts in its own way"
                )
            out.append(size * stride)
            continue
        pad = 0 if mode == "VALID" else pads[axis] + pads[rank + axis]
        out.append(fn("max", (size - 1) * stride + extra[axis] + (kernel[axis] - 1) * dilations[axis] + 1 - pad, 0))
    return out


@shape_rule("MaxPool", "AveragePool", "LpPool")
def pool(call: Call) -> list[Sized | None]:
    x = call.x()
    round_up = call.opset >= 10 and call.int("ceil_mode", 0) != 0
    shape = (*x.shape[:2], *window_counts(call, x.shape[2:], _kernel(call, None), pool=True, round_up=round_up))
    return [Sized(x.dtype, shape), Sized("i64", shape)]


@shape_rule("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(call: Call) -> list[Sized | None]:
    x = call.x()
    return [Sized(x.dtype, (*x.shape[:2], *([1] * (x.rank - 2))))]


@shape_rule("MaxUnpool")
def max_unpool(call: Call) -> list[Sized | None]:
    x, requested = call.x(), call.values(2)
    if requested is None:
        raise Unsupported("the pooled input's sizes are not given")
    return [Sized(x.dtype, requested)]
