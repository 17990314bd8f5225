"""8-bit layers: convolutions and products of quantized operands, with what follows them, as functions in C.

Input: quantized tensors with their scales and zero points. Output: `Layer`, and the function (`int8_conv_unit.h`,
`int8_depthwise_unit.h`) that computes its result as float32, int32, or quantized again. Invariant: the order of
operands and numbers is that of the enums in `int8_layer.h`; images are NHWC, and weights are constants that are packed
ahead of time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from smelt.ir.kernel import Function, Geometry, Ix, Tensor, ix, product

from .int8_panels import CHANNELS, NR, layer_panel_bytes
from .int8_reference import reference
from .nhwc import image_below

if TYPE_CHECKING:
    from .builder import CpuBuilder

BYTES: Final = ("u8", "i8")
RESULTS: Final = {"i32": 0, "f32": 1, "u8": 2, "i8": 3}
FEW_CHANNELS: Final = 16  # of an image whose taps are lines of the kernel
_UNITS: Final = {name: f"#include <smelt/int8/int8_{name}_unit.h>\n" for name in ("conv", "depthwise")}
_LINE: Final = 64
_NO_LIMIT: Final = (-math.inf, math.inf)


@dataclass(frozen=True)
class Restored:
    """A quantized tensor and what makes numbers of it; `axis` is that of a scale of several elements. Without a scale
    the numbers are integers."""

    q: Tensor
    scale: Tensor | None
    zero: Tensor | None
    axis: int | None = None

    @property
    def whole(self) -> bool:
        """One scale for the tensor, of bytes."""
        return self.q.dtype in BYTES and self.axis is None and (self.scale is None or self.scale.dtype == "f32")


@dataclass(frozen=True)
class Quantized:
    """How a result is quantized."""

    scale: Tensor
    zero: Tensor | None
    dtype: str


@dataclass(frozen=True)
class Layer:
    """A convolution of a quantized image, or a product of quantized rows (without a geometry).

    The bias is float32, or int32 with `bias_scale`, or int32 without, where it has the scale of the products. `limits`
    are those of the numbers before they are quantized. `shift` is added after `result` (one number for each column, or
    one), and the sum is quantized as `second`; then `residual`, and that sum is quantized as `total`. `table` has the
    byte that each byte of all this becomes. `integers`: the result are int32 sums."""

    x: Restored
    weights: Restored
    layout: str
    geometry: Geometry | None = None
    groups: int = 1
    bias: Tensor | None = None
    bias_scale: Tensor | None = None
    limits: tuple[float, float] = _NO_LIMIT
    result: Quantized | None = None
    shift: Tensor | None = None
    second: Quantized | None = None
    residual: Restored | None = None
    total: Quantized | None = None
    total_limits: tuple[float, float] = _NO_LIMIT
    table: Tensor | None = None
    integers: bool = False

    @property
    def own(self) -> Quantized | None:
        """How the result is quantized before a residual is added."""
        return self.second or self.result

    @property
    def dtype(self) -> str:
        """Of the result."""
        final = self.total or self.own
        return final.dtype if final is not None else "i32" if self.integers else "f32"

    @property
    def depthwise(self) -> bool:
        return self.layout == "int8:depthwise"

    @property
    def columns(self) -> int:
        """Of all groups."""
        rows, columns = self.weights.q.shape[0].const, self.weights.q.shape[1].const
        assert rows is not None and columns is not None
        return columns if self.layout == "int8:dense" else rows


def convolution_layer(x: Restored, weights: Restored, geometry: Geometry, groups: int) -> Layer | None:
    """None where no kernel fits."""
    sizes = [size.const for size in weights.q.shape]
    if geometry.spread or geometry.rank > 2 or None in sizes or 0 in sizes or x.q.shape[1].const is None:
        return None
    if not x.whole or weights.q.dtype not in BYTES or weights.axis not in (None, 0):
        return None
    layout = _layout(x.q.shape[1].const, [int(size or 0) for size in sizes], geometry, groups)
    return None if layout is None else Layer(x, weights, layout, geometry, groups)


def _layout(channels: int, sizes: Sequence[int], geometry: Geometry, groups: int) -> str | None:
    if groups == channels == sizes[0] and sizes[1] == 1 and groups > 1:
        return "int8:depthwise"
    each = channels // groups
    if groups == 1 and geometry.dilation[-1] == 1 and (each < FEW_CHANNELS or each % 4):
        return "int8:lines"
    return f"int8:taps:{groups}" if each % 4 == 0 and (groups == 1 or sizes[0] // groups % 4 == 0) else None


def product_layer(x: Restored, weights: Restored, *, transposed: bool) -> Layer | None:
    """Rows of x, times a matrix or its transpose."""
    if x.q.rank < 2 or weights.q.rank != 2 or not x.whole or weights.q.dtype not in BYTES:
        return None
    columns = 0 if transposed else 1
    known = weights.q.shape[0].const, weights.q.shape[1].const
    if weights.axis not in (None, columns) or not all(known):
        return None
    return Layer(x, weights, "int8:dense-transposed" if transposed else "int8:dense")


def layer_result(k: CpuBuilder, layer: Layer) -> Tensor | None:
    """What the layer gives, in the model's order; None where its weights are no constants."""
    packed = k.pack(layer.weights.q, layer.layout)
    if packed is None:
        return None
    made = k.function(_function(k, layer, packed))[0]
    return made if layer.geometry is None else _in_model_order(k, made, layer.geometry)


def _in_model_order(k: CpuBuilder, made: Tensor, geometry: Geometry) -> Tensor:
    if geometry.rank == 1:
        made = k.reshape(made, (made.shape[0], *made.shape[2:]))
    return k.from_nhwc(made)


def _image(k: CpuBuilder, x: Tensor, geometry: Geometry | None) -> Tensor:
    return x if geometry is None else k.to_nhwc(x)


def _function(k: CpuBuilder, layer: Layer, packed: Tensor) -> Function:
    name = "depthwise" if layer.depthwise else "conv"
    sizes = _sizes(layer)
    batch, high, wide = sizes[0], sizes[4], sizes[5]
    shape = (batch, high, wide) if layer.geometry is not None else layer.x.q.shape[:-1]
    weights = product(layer.weights.q.shape)
    return Function(
        name=f"smelt_int8_{name}",
        text=_UNITS[name],
        operands=_operands(k, layer, packed),
        results=(((*shape, ix(layer.columns)), layer.dtype),),
        numbers=(*sizes, *_numbers(layer)),
        factors=(*layer.limits, *layer.total_limits),
        scratch_bytes=_scratch_bytes(layer, sizes),
        flops=batch * high * wide * weights * 2,
        reference=reference,
    )


def _operands(k: CpuBuilder, layer: Layer, packed: Tensor) -> tuple[Tensor | None, ...]:
    x, w, y, r, z = layer.x, layer.weights, layer.result, layer.residual, layer.total
    scales = [None if of is None else (of.scale, of.zero) for of in (y, z)]
    return (
        x.q if _in_nchw(layer) else _image(k, x.q, layer.geometry), packed, x.scale, x.zero, w.scale, w.zero,
        layer.bias, layer.bias_scale,
        *(scales[0] or (None, None)),
        None if r is None else _image(k, r.q, layer.geometry), *((None, None) if r is None else (r.scale, r.zero)),
        *(scales[1] or (None, None)),
        layer.shift, *((None, None) if layer.second is None else (layer.second.scale, layer.second.zero)), layer.table,
    )  # fmt: skip


def _sizes(layer: Layer) -> tuple[Ix, ...]:
    """Batch, sizes of the image and of the result, columns of a group, groups, kernel, strides, dilations, padding."""
    g, shape, each = layer.geometry, layer.x.q.shape, ix(layer.columns // layer.groups)
    one, none = ix(1), ix(0)
    if g is None:
        rows = product(shape[:-1])
        return one, one, rows, shape[-1], one, rows, each, one, *(one,) * 6, none, none
    lead = (one,) * (2 - g.rank)
    kernel, stride, dilation = (tuple(ix(v) for v in values) for values in (g.kernel, g.stride, g.dilation))
    windows = (*lead, *kernel, *lead, *stride, *lead, *dilation, *(none,) * (2 - g.rank), *g.before)
    groups = one if layer.depthwise else ix(layer.groups)
    each = ix(layer.columns) if layer.depthwise else each
    return shape[0], *lead, *g.sizes, shape[1], *lead, *g.out, each, groups, *windows


def _numbers(layer: Layer) -> tuple[Ix, ...]:
    sizes = [size.const or 0 for size in layer.weights.q.shape]
    signed = [int(of.q.dtype == "i8") for of in (layer.x, layer.weights)]
    counted = (layer.weights.scale, layer.weights.zero, layer.bias, layer.bias_scale)
    counts = [ix(1) if of is None else of.elements for of in counted]
    if layer.bias is not None and layer.bias.dtype == "i32" and layer.bias_scale is None:
        counts[3] = ix(0)
    step, kind = layer_panel_bytes(sizes, layer.layout), RESULTS[layer.dtype]
    last = layer.residual is not None and layer.residual.q.dtype == "i8", _in_nchw(layer)
    before = (int(_by_lines(layer)), *signed, step, kind)
    shifts = ix(1) if layer.shift is None else layer.shift.elements
    return (*(ix(n) for n in before), *counts, *(ix(int(n)) for n in last), shifts)


def _by_lines(layer: Layer) -> bool:
    """Whether taps are read from a padded copy."""
    if layer.geometry is None:
        return (layer.x.q.shape[-1].const or 0) % 4 != 0
    return layer.layout == "int8:lines"


def _in_nchw(layer: Layer) -> bool:
    """Whether the padded copy is made from an image in the model's order."""
    return layer.layout == "int8:lines" and image_below(layer.x.q) is None


def _scratch_bytes(layer: Layer, sizes: Sequence[Ix]) -> Ix:
    """What each column needs, a tap of padding; a padded copy, or the weights of a depthwise convolution as int32."""
    batch, _, _, channels, high, wide, each, groups, kh, kw, sh, sw, dh, _, _, _ = sizes
    unit = CHANNELS if layer.depthwise else NR
    padded = (each + (unit - 1)) // unit * unit
    columns = padded * groups * 20
    if layer.depthwise:
        return columns + _LINE + padded * kh * kw * 4
    padding = (channels + (2 * _LINE - 1)) // _LINE * _LINE
    if not _by_lines(layer):
        return columns + padding
    height, width = (high - 1) * sh + (kh - 1) * dh + 1, (wide - 1) * sw + kw
    return columns + padding + batch * height * width * channels + _LINE


def with_limits(layer: Layer, low: float, high: float) -> Layer:
    """Limits one after the other: min(max(x, low), high)."""
    before = layer.limits
    inside = [min(max(limit, low), high) for limit in before]
    return replace(layer, limits=(inside[0], inside[1]))
