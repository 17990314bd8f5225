"""Which kernel a pool is.

Input: the operands of a pool in the model's order. Output: a tensor in NHWC, seen in the model's order; one in the
model's order; or a reduction in plain loops. Invariant: kernels are for float32.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from smelt.codegen.kernel_forms import WindowKernel
from smelt.ir.kernel import Expr, Geometry, Ix, Tensor, fn
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.in_loops import pool_in_loops
from smelt.ir.kernel.layout import Index

from .nhwc import image_below
from .window_sizes import FEW_CHANNELS, LONG_LINE, MOST_AXES, MOST_TAPS, maxima_fit

if TYPE_CHECKING:
    from .builder import CpuBuilder

_REASON: Final = "lanes are channels, and only taps inside of the image are visited"
_NCHW_REASON: Final = "the image is in NCHW, or has one channel: lanes are windows side by side"


def pool(k: CpuBuilder, kind: str, x: Tensor, g: Geometry, counted: bool) -> Tensor:
    few = g.taps <= MOST_TAPS or (kind == "max" and maxima_fit(g))
    if x.dtype != "f32" or g.rank > MOST_AXES or not few:
        return pool_in_loops(k, kind, x, g, counted=counted)
    if _in_nchw(x, g):
        kernel = WindowKernel("nchw", x, None, g, pool=kind, counted=counted, reason=_NCHW_REASON)
        return k.make((*x.shape[:2], *g.out), x.dtype, kernel)
    kernel = WindowKernel("depthwise", k.to_nhwc(x), None, g, pool=kind, counted=counted, reason=_REASON)
    return k.from_nhwc(k.make((x.shape[0], *g.out, x.shape[1]), x.dtype, kernel))


def _in_nchw(x: Tensor, g: Geometry) -> bool:
    """One channel, or an image that is in NCHW anyway: few channels, or long lines, whose windows lie side by side."""
    if image_below(x) is not None:
        return False
    few = (x.shape[1].const or FEW_CHANNELS) < FEW_CHANNELS or (g.out[-1].const or 0) >= LONG_LINE
    return x.shape[1].const == 1 or (few and g.stride[-1] == 1)


def largest_bytes(k: CpuBuilder, x: Tensor, g: Geometry) -> Tensor | None:
    """The largest of the bytes that each window sees. A tap in the padding sees the image's border, which its window
    sees anyway: windows without gaps, no wider than what they see beyond the border."""
    if g.rank > MOST_AXES or g.taps > MOST_TAPS or any(d != 1 for d in g.dilation) or _sees_padding_alone(g):
        return None
    image, shape = k.to_nhwc(x), (x.shape[0], *g.out, x.shape[1])

    def seen(tap: tuple[int, ...]) -> Callable[[Index], list[Ix]]:
        def at(w: Index) -> list[Ix]:
            sides = zip(w[1:-1], g.stride, tap, g.before, g.sizes, strict=True)
            places = [fn("max", fn("min", o * s + t - b, size - 1), 0) for o, s, t, b, size in sides]
            return [w[0], *places, w[-1]]

        return at

    def body(first: Expr, *others: Expr) -> Expr:
        for other in others:
            first = E.op("max", first, other)
        return first

    taps = itertools.product(*(range(size) for size in g.kernel))
    return k.from_nhwc(k.map(body, *(k.view(image, shape, seen(tap)) for tap in taps)))


def _sees_padding_alone(g: Geometry) -> bool:
    """Whether a window may lie beside the image."""
    for kernel, before, after in zip(g.kernel, g.before, g.after, strict=True):
        if before.const is None or after.const is None or max(before.const, after.const) >= kernel:
            return True
    return False
