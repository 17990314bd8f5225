"""Where a position of a resized axis lies in the input.

Input: a position as an expression, and its axis. Output: its coordinate in the input, in float32, by the same
operations as ONNX Runtime's. Invariant: nothing is clamped here; a coordinate may lie outside of the axis.
"""

from __future__ import annotations

from dataclasses import dataclass

from smelt.ir.kernel import Expr, Ix
from smelt.ir.kernel import expr as E

TRANSFORMS = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")


@dataclass(frozen=True)
class Axis:
    """One resized axis; `scale` is None when it follows from the sizes, or is the `ratio` of two of them."""

    before: Ix
    after: Ix
    scale: float | None
    ratio: tuple[Ix, Ix] | None = None

    @property
    def kept(self) -> bool:
        return self.before == self.after and self.scale in (None, 1.0) and self.ratio is None

    @property
    def factor(self) -> Expr:
        """The scale as ONNX Runtime has it, a float."""
        if self.scale is not None:
            return E.const(self.scale, "f32")
        more, less = self.ratio or (self.after, self.before)
        return E.op("div", size(more), size(less))


def size(value: Ix) -> Expr:
    return E.cast(E.index(value), "f32")


def original(place: Expr, axis: Axis, transform: str) -> Expr:
    """The coordinate in the input of a position of the output."""
    scale = axis.factor
    half, one = E.const(0.5, "f32"), E.const(1, "f32")
    if transform == "asymmetric":
        return E.op("div", place, scale)
    if transform == "align_corners":
        span = E.op("sub", size(axis.after), one)
        moved = E.op("div", E.op("mul", place, E.op("sub", size(axis.before), one)), span)
        return E.select(E.op("eq", size(axis.after), one), E.const(0, "f32"), moved)
    centred = E.op("sub", E.op("div", E.op("add", place, half), scale), half)
    if transform == "pytorch_half_pixel":
        return E.select(E.op("gt", size(axis.after), one), centred, E.const(0, "f32"))
    if transform == "half_pixel_symmetric":
        return _symmetric(centred, axis, scale)
    return centred


def _symmetric(centred: Expr, axis: Axis, scale: Expr) -> Expr:
    """The part of the output that rounding cut off is shared between both ends."""
    half, one = E.const(0.5, "f32"), E.const(1, "f32")
    before = size(axis.before)
    adjustment = E.op("div", size(axis.after), E.op("mul", scale, before))
    offset = E.op("mul", E.op("mul", before, half), E.op("sub", one, adjustment))
    return E.op("add", offset, centred)


def cropped(place: Expr, axis: Axis, start: Expr, end: Expr) -> Expr:
    """The coordinate in the input when only the part between start and end, shares of the axis, is resized."""
    one, span = E.const(1, "f32"), E.op("sub", size(axis.before), E.const(1, "f32"))
    step = E.op("div", E.op("mul", E.op("sub", end, start), span), E.op("sub", size(axis.after), one))
    many = E.op("add", E.op("mul", start, span), E.op("mul", place, step))
    middle = E.op("mul", E.op("mul", E.const(0.5, "f32"), E.op("add", start, end)), span)
    return E.select(E.op("gt", size(axis.after), one), many, middle)
