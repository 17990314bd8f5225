"""Resize: the new sizes, and the nearest neighbour.

Input: a node with constant scales, or sizes. Output: a view whose index is computed in float32, as ONNX Runtime does.
Invariant: coordinates follow ONNX's transformation and rounding modes exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir

from smelt.ir.kernel import Expr, Ix, Tensor, Unsupported, fn, ix
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.index import nonneg
from smelt.ops.axes import axes_of
from smelt.ops.registry import Call, Cost, op
from smelt.ops.resize_coordinates import TRANSFORMS, Axis, original
from smelt.ops.resize_interpolated import interpolated
from smelt.ops.shape_only import Sized, shape_rule

ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def resized_axes(call: Call) -> list[Axis]:
    """Every axis of the input with its new size."""
    x = call.x()
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
        raise Unsupported("neither scales nor sizes fit the resized axes")
    wanted = [s if nonneg(s) else fn("max", s, 0) for s in sizes]
    policy = call.str("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        return _alike(policy, before, wanted)
    return [Axis(b, s, None) for b, s in zip(before, wanted, strict=True)]


def _alike(policy: str, before: list[Ix], wanted: list[Ix]) -> list[Axis]:
    """All axes by one ratio, the least or the largest that is requested for; sizes are rounded, halves up."""
    if policy not in ("not_larger", "not_smaller") or not before:
        raise Unsupported(f"keep_aspect_ratio_policy {policy}")
    more, less = wanted[0], before[0]
    for b, s in zip(before[1:], wanted[1:], strict=True):
        smaller = fn("lt", s * less, more * b)
        other = smaller if policy == "not_larger" else fn("lt", more * b, s * less)
        more, less = fn("sel", other, s, more), fn("sel", other, b, less)
    return [Axis(b, (more * b * 2 + less) // (less * 2), None, (more, less)) for b in before]


def _numbers(scales: Tensor, count: int) -> list[float]:
    if scales.elements.const != count or scales.rank != 1:
        raise Unsupported("the number of scales does not fit the resized axes")
    found: list[float] = []
    for k in range(count):
        kind = scales.at([k]).kind
        if not isinstance(kind, E.Const):
            raise Unsupported("scales are known only at run time, and the sizes of the result with them")
        if not 0 < float(kind.value) < math.inf:
            raise Unsupported("scales are not positive numbers")
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
    raise Unsupported(f"a free size times {scale}")


@shape_rule("Resize", "Upsample")
def resized(call: Call) -> list[Sized | None]:
    return [Sized(call.x().dtype, tuple(a.after for a in resized_axes(call)))]


def _cost_of_mode(node: ir.Node) -> Cost:
    """Cubic interpolation is what ONNX Runtime does pixel by pixel."""
    mode = node.attributes.get("mode")
    return "heavy" if mode is not None and not mode.is_ref() and mode.value == "cubic" else "cheap"


@op("Resize", since=10, kind="window", cost=_cost_of_mode)
@op("Upsample", since=7, before=10, kind="window")
def resize(call: Call) -> Tensor:
    x = call.x()
    mode = call.str("mode", "nearest")
    axes = resized_axes(call)
    if mode != "nearest":
        return interpolated(call, mode, axes)
    return call.k.along_axes(x, [a.after for a in axes], [_source(call, a, *_modes(call)) for a in axes])


def _modes(call: Call) -> tuple[str, str]:
    """Before opset 11 a position is scaled and cut down to its pixel."""
    if call.op == "Upsample" or call.opset < 11:
        return "asymmetric", "floor"
    transform = call.str("coordinate_transformation_mode", "half_pixel")
    rounding = call.str("nearest_mode", "round_prefer_floor")
    if transform not in TRANSFORMS or rounding not in ROUNDINGS:
        raise Unsupported(f"{transform} with {rounding} has no kernel")
    return transform, rounding


def _source(call: Call, axis: Axis, transform: str, rounding: str) -> Callable[[Ix], Ix]:
    """The element of the input that a position shows: by plain integers, or from a table."""
    step = _whole_step(axis, transform, rounding)
    if step is not None:
        return lambda i: i // step
    top = E.index(axis.before - 1)

    def nearest(i: Expr) -> Expr:
        place = _rounded(original(E.cast(i, "f32"), axis, transform), rounding)
        return E.op("min", E.op("max", E.cast(place, "i64"), E.const(0, "i64")), top)

    places = call.k.map(nearest, call.k.iota((axis.after,), 0))
    return lambda i: call.k.data_index(places.at([i]), axis.before, checked=False)


def _whole_step(axis: Axis, transform: str, rounding: str) -> int | None:
    """How often each element is shown, where that is a whole number."""
    if axis.kept:
        return 1
    if axis.scale is None or axis.scale != int(axis.scale):
        return None
    centred = transform.startswith("half_pixel") or (transform == "pytorch_half_pixel" and (axis.after.const or 0) > 1)
    plain = (transform, rounding) == ("asymmetric", "floor") or (centred and rounding.startswith("round"))
    return int(axis.scale) if plain else None


def _rounded(place: Expr, rounding: str) -> Expr:
    half = E.const(0.5, "f32")
    if rounding == "floor":
        return E.op("floor", place)
    if rounding == "ceil":
        return E.op("ceil", place)
    if rounding == "round_prefer_floor":
        return E.op("ceil", E.op("sub", place, half))
    return E.op("floor", E.op("add", place, half))
