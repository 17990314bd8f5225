"""Linear and cubic Resize: every axis is a weighted sum of a few elements of the input.

Input: a node and its axes. Output: a tensor that reads, for each resized axis, the elements that a short table names,
with the weights of another. Invariant: places in a table are clamped to their axis, so that reads need no check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from smelt.ir.kernel import Builder, Expr, Ix, Tensor, Unsupported, fn
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.resampling import Taps
from smelt.ops.axes import axes_of
from smelt.ops.registry import Call
from smelt.ops.resize_coordinates import TRANSFORMS, Axis, cropped, original

CUBIC_TAPS = 4


def interpolated(call: Call, mode: str, axes: Sequence[Axis]) -> Tensor:
    x = call.x()
    _refuse_what_differs(call, mode, x)
    made = {n: _coordinates(call, n, a) for n, a in enumerate(axes) if not _stays(call, a)}
    taps = [_taps(call, mode, n, axes[n], place) for n, place in made.items()]
    return _extrapolated(call, call.k.resample(x, taps), axes, made)


def _refuse_what_differs(call: Call, mode: str, x: Tensor) -> None:
    if mode not in ("linear", "cubic"):
        raise Unsupported(f"{mode} is no interpolation")
    if x.dtype not in E.FLOATS:
        raise Unsupported(f"{mode} interpolation of {x.dtype}")
    if call.int("antialias", 0) != 0:
        raise Unsupported("interpolation with antialias has no kernel")
    if call.int("exclude_outside", 0) != 0 and mode == "linear":
        raise Unsupported("exclude_outside goes with cubic interpolation only")


def _stays(call: Call, axis: Axis) -> bool:
    return axis.kept and _transform(call) != "tf_crop_and_resize"


def _transform(call: Call) -> str:
    """Before opset 11 a position is scaled, nothing else."""
    if call.op == "Upsample" or call.opset < 11:
        return "asymmetric"
    return call.str("coordinate_transformation_mode", "half_pixel")


# tables


def _coordinates(call: Call, number: int, axis: Axis) -> Callable[[Expr], Expr]:
    """The coordinate in the input of a position, as a float."""
    transform = _transform(call)
    if transform == "tf_crop_and_resize":
        start, end = _bounds(call, number)
        return lambda i: cropped(i, axis, start, end)
    if transform not in TRANSFORMS:
        raise Unsupported(f"{transform} has no kernel")
    return lambda i: original(i, axis, transform)


def _bounds(call: Call, number: int) -> tuple[Expr, Expr]:
    """Where the region of interest starts and ends on an axis; an axis that is not named is taken whole."""
    roi, rank = call.x(1), call.x().rank
    named = axes_of(call.ints("axes"), rank) if call.has("axes") else tuple(range(rank))
    if number not in named:
        return E.const(0, "f32"), E.const(1, "f32")
    if roi.rank != 1 or roi.elements.const != 2 * len(named):
        raise Unsupported("the region of interest does not fit the resized axes")
    at = named.index(number)
    return E.cast(roi.at([at]), "f32"), E.cast(roi.at([at + len(named)]), "f32")


def _taps(call: Call, mode: str, number: int, axis: Axis, place: Callable[[Expr], Expr]) -> Taps:
    def table(body: Callable[[Expr], Expr]) -> Tensor:
        return call.k.map(lambda i: body(place(E.cast(i, "f32"))), call.k.iota((axis.after,), 0))

    made = _linear(call.k, axis, table) if mode == "linear" else _cubic(call, axis, table)
    return Taps(number, axis.after, *made)


Table = Callable[[Callable[[Expr], Expr]], Tensor]
Made = tuple[tuple[Callable[[Ix], Ix], ...], tuple[Tensor, ...]]


def _linear(k: Builder, axis: Axis, table: Table) -> Made:
    """Two neighbours; the first one is never the last element, where there are two."""
    one, top = E.const(1, "f32"), axis.before - 1

    def first(at: Expr) -> Expr:
        return _clamped(E.op("floor", _within(at, axis)), fn("max", axis.before - 2, 0))

    def share(at: Expr) -> Expr:
        return E.op("sub", _within(at, axis), E.cast(first(at), "f32"))

    places, shares = table(first), table(share)
    rest = table(lambda at: E.op("sub", one, share(at)))

    left = _reader(k, places, axis)

    def right(i: Ix) -> Ix:
        return left(i) + 1 if (axis.before.const or 0) > 1 else fn("min", left(i) + 1, top)

    return (left, right), (rest, shares)


def _cubic(call: Call, axis: Axis, table: Table) -> Made:
    """Two neighbours on either side; those outside of the axis are its ends, or are left out."""
    slope, apart = call.float("cubic_coeff_a", -0.75), call.int("exclude_outside", 0) != 0

    def nth(at: Expr, tap: int) -> Expr:
        return E.op("add", E.op("floor", at), E.const(tap - 1, "f32"))

    def weight(at: Expr, tap: int) -> Expr:
        found = _cubic_weight(E.op("sub", at, E.op("floor", at)), tap, slope)
        return E.select(_inside(nth(at, tap), axis), found, E.const(0, "f32")) if apart else found

    def share(at: Expr, tap: int) -> Expr:
        if not apart:
            return weight(at, tap)
        total = weight(at, 0)
        for other in range(1, CUBIC_TAPS):
            total = E.op("add", total, weight(at, other))
        return E.op("div", weight(at, tap), total)

    places = [table(lambda at, t=t: _clamped(nth(at, t), axis.before - 1)) for t in range(CUBIC_TAPS)]
    weights = tuple(table(lambda at, t=t: share(at, t)) for t in range(CUBIC_TAPS))
    return tuple(_reader(call.k, p, axis) for p in places), weights


def _reader(k: Builder, places: Tensor, axis: Axis) -> Callable[[Ix], Ix]:
    return lambda i: k.data_index(places.at([i]), axis.before, checked=False)


def _cubic_weight(share: Expr, tap: int, slope: float) -> Expr:
    """Keys' kernel at the distance of a tap from the coordinate."""
    one = E.const(1, "f32")
    near = share if tap == 1 else E.op("sub", one, share)
    if tap in (1, 2):
        inner = E.op("sub", E.op("mul", E.const(slope + 2, "f32"), near), E.const(slope + 3, "f32"))
        return E.op("add", E.op("mul", E.op("mul", inner, near), near), one)
    far = E.op("add", share if tap == 0 else near, one)
    inner = E.op("sub", E.op("mul", E.const(slope, "f32"), far), E.const(5 * slope, "f32"))
    inner = E.op("add", E.op("mul", inner, far), E.const(8 * slope, "f32"))
    return E.op("sub", E.op("mul", inner, far), E.const(4 * slope, "f32"))


def _within(at: Expr, axis: Axis) -> Expr:
    return E.op("min", E.op("max", at, E.const(0, "f32")), E.cast(E.index(axis.before - 1), "f32"))


def _inside(at: Expr, axis: Axis) -> Expr:
    below = E.op("ge", at, E.const(0, "f32"))
    return E.op("and", below, E.op("le", at, E.cast(E.index(axis.before - 1), "f32")))


def _clamped(at: Expr, top: Ix) -> Expr:
    """A place as an integer of the axis, also where the coordinate is no number."""
    return E.op("min", E.op("max", E.cast(at, "i64"), E.const(0, "i64")), E.index(top))


# outside of the image


def _extrapolated(call: Call, x: Tensor, axes: Sequence[Axis], places: dict[int, Callable[[Expr], Expr]]) -> Tensor:
    """What lies outside of the image has a value of its own when a region of it is cut out."""
    if _transform(call) != "tf_crop_and_resize":
        return x
    outside = E.const(call.float("extrapolation_value", 0.0), x.dtype)
    k = call.k
    for n, place in places.items():
        inside = k.map(
            lambda i, p=place, a=axes[n]: _inside(p(E.cast(i, "f32")), a), k.iota((axes[n].after,), 0), dtype="b"
        )
        along = k.unsqueeze(inside, range(1, x.rank - n))
        x = k.map(lambda e, i: E.select(i, e, outside), x, along)
    return x
