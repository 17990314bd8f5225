"""Which kernel a pool is.

Input: the operands of a pool in the model's order. Output: a tensor in NHWC, seen in the model's order, or a
reduction in plain loops. Invariant: kernels are for float32 and windows that are walked channel by channel.
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

from .window_sizes import MOST_AXES, MOST_TAPS

if TYPE_CHECKING:
    from .builder import CpuBuilder

_REASON: Final = "lanes are channels, and only taps inside of the image are visited"


def pool(k: CpuBuilder, kind: str, x: Tensor, g: Geometry, counted: bool) -> Tensor:
    if x.dtype != "f32" or g.rank > MOST_AXES or g.taps > MOST_TAPS:
        return pool_in_loops(k, kind, x, g, counted=counted)
    kernel = WindowKernel("depthwise", k.to_nhwc(x), None, g, pool=kind, counted=counted, reason=_REASON)
    return k.from_nhwc(k.make((x.shape[0], *g.out, x.shape[1]), x.dtype, kernel))


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
