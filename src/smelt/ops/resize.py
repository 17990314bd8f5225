"""Resize by nearest neighbour, and the sizes of any Resize.

Input: a node with constant scales, or sizes. Output: a view whose index is computed in float32, as ONNX Runtime does.
Invariant: coordinates follow ONNX's transformation and rounding modes exactly; linear and cubic are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from smelt.ir.kernel import Expr, Ix, Refusal, Tensor, fn, ix
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.index import nonneg
from smelt.ops.axes import axes_of
from smelt.ops.registry import Call, op
from smelt.ops.shape_only import Sized, shape_rule

TRANSFORMS = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@dataclass(frozen=True)
class Axis:
    """One resized axis; `scale` is None when it follows from the sizes."""

    before: Ix
    after: Ix
    scale: float | None


def resized_axes(call: Call) -> list[Axis]:
    """Every axis of the input with its new size."""
    x = call.x()
    if call.str("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Refusal("sizes that keep the aspect ratio have no kernel")
    chosen = axes_of(call.ints("axes"), x.rank) if call.has("axes") else tuple(range(x.rank))
    out = [Axis(s, s, 1.0) for s in x.shape]
    for axis, made in zip(chosen, _targets(call, [x.shape[a] for a in chosen]), strict=True):
        out[axis] = made
    return out


def _targets(call: Call, before: list[Ix]) -> list[Axis]:
    scales = call.maybe(2 if call.op == "Resize" and call.opset >= 11 else 1)
    if scales is not None and scales.elements.const != 0:
        return [Axis(b, _scaled(b, s), s) for b, s in zip(before, _numbers(scales, len(before)), strict=True)]
    sizes = call.values(3) if call.op == "Resize" and call.opset >= 11 else None
    if sizes is None or len(sizes) != len(before):
        raise Refusal("neither scales nor sizes fit the resized axes")
    return [Axis(b, s if nonneg(s) else fn("max", s, 0), None) for b, s in zip(before, sizes, strict=True)]


def _numbers(scales: Tensor, count: int) -> list[float]:
    if scales.elements.const != count or scales.rank != 1:
        raise Refusal("the number of scales does not fit the resized axes")
    found: list[float] = []
    for k in range(count):
        kind = scales.at([k]).kind
        if not isinstance(kind, E.Const) or not 0 < float(kind.value) < math.inf:
            raise Refusal("scales are not positive constants")
        found.append(float(kind.value))
    return found


def _scaled(size: Ix, scale: float) -> Ix:
    """floor(size * scale), for a free size when the scale is a whole number or one part of it."""
    if size.const is not None:
        return ix(math.floor(size.const * scale))
    if scale == int(scale):
        return size * int(scale)
    parts = 1 / scale
    if parts == int(parts):
        return size // int(parts)
    raise Refusal(f"a free size times {scale}")


@shape_rule("Resize", "Upsample")
def resized(call: Call) -> list[Sized | None]:
    return [Sized(call.x().dtype, tuple(a.after for a in resized_axes(call)))]


@op("Resize", since=10, kind="window")
@op("Upsample", since=7, before=10, kind="window")
def resize(call: Call) -> Tensor:
    x = call.x()
    mode = call.str("mode", "nearest")
    if mode != "nearest":
        raise Refusal(f"{mode} interpolation has no kernel yet")
    transform, rounding = _modes(call)
    axes = resized_axes(call)

    def back(w: tuple[Ix, ...]) -> list[Ix]:
        return [
            i if a.before == a.after and a.scale in (None, 1.0) else _source(call, i, a, transform, rounding)
            for i, a in zip(w, axes, strict=True)
        ]

    return call.k.view(x, [a.after for a in axes], back)


def _modes(call: Call) -> tuple[str, str]:
    """Before opset 11 a position is scaled and cut down to its pixel."""
    if call.op == "Upsample" or call.opset < 11:
        return "asymmetric", "floor"
    transform = call.str("coordinate_transformation_mode", "half_pixel")
    rounding = call.str("nearest_mode", "round_prefer_floor")
    if transform not in TRANSFORMS or rounding not in ROUNDINGS:
        raise Refusal(f"{transform} with {rounding} has no kernel")
    return transform, rounding


def _source(call: Call, i: Ix, axis: Axis, transform: str, rounding: str) -> Ix:
    exact = _exact(i, axis, transform, rounding)
    if exact is not None:
        return exact
    place = _rounded(_original(E.cast(E.index(i), "f32"), axis, transform), rounding)
    low, high = E.const(0, "i64"), E.index(axis.before - 1)
    inside = E.op("min", E.op("max", E.cast(place, "i64"), low), high)
    return call.k.data_index(inside, axis.before)


def _exact(i: Ix, axis: Axis, transform: str, rounding: str) -> Ix | None:
    """Plain integer arithmetic for a whole scale: i floordiv scale."""
    if axis.scale is None or axis.scale != int(axis.scale):
        return None
    centred = transform.startswith("half_pixel") or (transform == "pytorch_half_pixel" and (axis.after.const or 0) > 1)
    if (transform, rounding) == ("asymmetric", "floor") or (centred and rounding.startswith("round")):
        return i // int(axis.scale)
    return None


def _size(value: Ix) -> Expr:
    return E.cast(E.index(value), "f32")


def _original(place: Expr, axis: Axis, transform: str) -> Expr:
    """The coordinate in the input of a position of the output."""
    scale = E.const(axis.scale, "f32") if axis.scale is not None else E.op("div", _size(axis.after), _size(axis.before))
    half, one = E.const(0.5, "f32"), E.const(1, "f32")
    if transform == "asymmetric":
        return E.op("div", place, scale)
    if transform == "align_corners":
        span = E.op("sub", _size(axis.after), one)
        moved = E.op("div", E.op("mul", place, E.op("sub", _size(axis.before), one)), span)
        return E.select(E.op("eq", _size(axis.after), one), E.const(0, "f32"), moved)
    centred = E.op("sub", E.op("div", E.op("add", place, half), scale), half)
    if transform == "pytorch_half_pixel":
        return E.select(E.op("gt", _size(axis.after), one), centred, E.const(0, "f32"))
    if transform == "half_pixel_symmetric":
        return _symmetric(centred, axis, scale)
    return centred


def _symmetric(centred: Expr, axis: Axis, scale: Expr) -> Expr:
    """The part of the output that rounding cut off is shared between both ends."""
    half, one = E.const(0.5, "f32"), E.const(1, "f32")
    before = _size(axis.before)
    adjustment = E.op("div", _size(axis.after), E.op("mul", scale, before))
    offset = E.op("mul", E.op("mul", before, half), E.op("sub", one, adjustment))
    return E.op("add", offset, centred)


def _rounded(place: Expr, rounding: str) -> Expr:
    half = E.const(0.5, "f32")
    if rounding == "floor":
        return E.op("floor", place)
    if rounding == "ceil":
        return E.op("ceil", place)
    if rounding == "round_prefer_floor":
        return E.op("ceil", E.op("sub", place, half))
    return E.op("floor", E.op("add", place, half))
