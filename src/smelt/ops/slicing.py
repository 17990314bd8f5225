"""Slice, Pad and their kin: windows of a tensor, clamped to it or reaching beyond it.

Input: a node. Output: a view with affine indices, or an assembly with a border. Invariant: bounds follow ONNX for every
value of the sizes, also when starts, ends and pads are known only at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from smelt.ir.kernel import Expr, Ix, Tensor, Unsupported, fn, ix
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.index import nonneg
from smelt.ops.axes import axes_of
from smelt.ops.movement import numbers, require_size, run_time_axes, values_or_refuse
from smelt.ops.registry import Call, op

# ONNX recommends the largest int32 or int64 for "up to the end" of a dimension of unknown size.
END = 2**31 - 1
LONGEST_STEP = 2**62  # any longer step takes one element too, and counting with it would overflow


@dataclass(frozen=True)
class Window:
    """Elements start, start + step, ... of an axis, `size` of them."""

    start: Ix
    step: Ix
    size: Ix


# Slice


@op("Slice", since=10, kind="movement")
def slice_by_inputs(call: Call) -> Tensor:
    x = call.x()
    starts, ends = values_or_refuse(call, 1), values_or_refuse(call, 2)
    return _slice(call, x, starts, ends, call.values(3), call.values(4))


@op("Slice", since=1, before=10, kind="movement")
def slice_by_attributes(call: Call) -> Tensor:
    starts = tuple(ix(v) for v in call.ints("starts"))
    ends = tuple(ix(v) for v in call.ints("ends"))
    axes = tuple(ix(v) for v in call.ints("axes")) if call.has("axes") else None
    return _slice(call, call.x(), starts, ends, axes, None)


def _slice(
    call: Call,
    x: Tensor,
    starts: Sequence[Ix],
    ends: Sequence[Ix],
    axes: Sequence[Ix] | None,
    steps: Sequence[Ix] | None,
) -> Tensor:
    where = _axes(call, axes, len(starts), x.rank)
    strides = [ix(1)] * len(starts) if steps is None else list(steps)
    if not len(starts) == len(ends) == len(where) == len(strides):
        raise Unsupported("starts, ends, axes and steps differ in length")
    windows = [Window(ix(0), ix(1), s) for s in x.shape]
    for axis, start, end, step in zip(where, starts, ends, strides, strict=True):
        for d in range(x.rank) if axis.const is None else (axis.const,):
            windows[d] = _chosen(fn("eq", axis, d), window(call, x.shape[d], start, end, step), windows[d])
    if all(w.start.const == 0 and w.step.const == 1 and w.size == s for w, s in zip(windows, x.shape, strict=True)):
        return x
    return call.k.slice(x, [w.start for w in windows], [w.step for w in windows], [w.size for w in windows])


def _axes(call: Call, axes: Sequence[Ix] | None, count: int, rank: int) -> list[Ix]:
    if axes is None:
        return [ix(a) for a in axes_of(range(count), rank)]
    fixed = numbers(axes)
    return run_time_axes(call, axes, rank) if fixed is None else [ix(a) for a in axes_of(fixed, rank)]


def _chosen(condition: Ix, yes: Window, no: Window) -> Window:
    start, step, size = (
        fn("sel", condition, a, b) for a, b in ((yes.start, no.start), (yes.step, no.step), (yes.size, no.size))
    )
    return Window(start, step, size)


def window(call: Call, size: Ix, start: Ix, end: Ix, step: Ix) -> Window:
    if step.const == 0:
        raise Unsupported("a slice has step 0")
    if step.const is not None:
        return _forward(size, start, end, step) if step.const > 0 else _backward(size, start, end, step)
    call.k.require_equal(fn("eq", step, 0), 0, "a slice's step must not be 0")
    step = fn("min", fn("max", step, -LONGEST_STEP), LONGEST_STEP)
    ahead, back = _forward(size, start, end, step), _backward(size, start, end, step)
    down = fn("lt", step, 0)
    return Window(fn("sel", down, back.start, ahead.start), step, fn("sel", down, back.size, ahead.size))


def _forward(size: Ix, start: Ix, end: Ix, step: Ix) -> Window:
    if start.const is not None and start.const < 0 and end.const is not None and end.const >= END and step.const == 1:
        return Window(fn("max", size + start, 0), step, fn("min", size, -start))  # the last few
    first, stop = _clamp_to_end(start, size), _clamp_to_end(end, size)
    count = stop - first if step.const == 1 else (stop - first + step - 1) // step
    return Window(first, step, fn("max", count, 0))


def _backward(size: Ix, start: Ix, end: Ix, step: Ix) -> Window:
    if start.const is not None and (start.const == -1 or start.const >= END):
        first = size - 1
    else:
        first = fn("max", fn("min", _wrapped(start, size), size - 1), 0)
    stop = (
        ix(-1)
        if end.const is not None and end.const <= -END
        else fn("max", fn("min", _wrapped(end, size), size - 1), -1)
    )
    count = first - stop if step.const == -1 else (first - stop - step - 1) // -step
    return Window(first, step, fn("min", fn("max", count, 0), size))


def _clamp_to_end(place: Ix, size: Ix) -> Ix:
    if place.const is not None and place.const >= END and size.const is None:
        return size
    return fn("min", fn("max", _wrapped(place, size), 0), size)


def _wrapped(place: Ix, size: Ix) -> Ix:
    """Negative places count from the end."""
    if nonneg(place):
        return place
    return fn("sel", fn("lt", place, 0), place + size, place)


# Pad


@op("Pad", since=11, kind="movement")
def pad_by_inputs(call: Call) -> Tensor:
    x = call.x()
    pads = values_or_refuse(call, 1)
    axes = _axes(call, call.values(3), x.rank, x.rank)
    return _pad(call, x, pads, axes, call.maybe(2))


@op("Pad", since=2, before=11, kind="movement")
def pad_by_attributes(call: Call) -> Tensor:
    x = call.x()
    value = call.k.const(call.float("value", 0.0), x.dtype)
    return _pad(call, x, [ix(v) for v in call.ints("pads")], [ix(d) for d in range(x.rank)], value)


def _pad(call: Call, x: Tensor, pads: Sequence[Ix], axes: Sequence[Ix], value: Tensor | None) -> Tensor:
    if len(pads) != 2 * len(axes):
        raise Unsupported(f"{len(pads)} pads for {len(axes)} axes")
    before, after = [ix(0)] * x.rank, [ix(0)] * x.rank
    for k, axis in enumerate(axes):
        for d in range(x.rank) if axis.const is None else (axis.const,):
            here = fn("eq", axis, d)
            before[d], after[d] = fn("sel", here, pads[k], before[d]), fn("sel", here, pads[len(axes) + k], after[d])
    mode = call.str("mode", "constant")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise Unsupported(f"mode {mode!r} is not one of ONNX's")
    x, before, after = _cropped(call, x, before, after)
    if all(p.const == 0 for p in (*before, *after)):
        return x
    if mode == "constant":
        return pad_with(call, x, before, after, value)
    return _pad_by_index(call, x, before, after, mode)


def _cropped(call: Call, x: Tensor, before: list[Ix], after: list[Ix]) -> tuple[Tensor, list[Ix], list[Ix]]:
    """Negative pads cut; what is left of them pads."""
    cut_before, cut_after = [fn("max", -b, 0) for b in before], [fn("max", -a, 0) for a in after]
    sizes = [s - b - a for s, b, a in zip(x.shape, cut_before, cut_after, strict=True)]
    if all(c.const == 0 for c in (*cut_before, *cut_after)):
        return x, before, after
    sizes = [require_size(call, s, "what is left after negative pads") for s in sizes]
    kept = call.k.slice(x, cut_before, [1] * x.rank, sizes)
    return kept, [fn("max", b, 0) for b in before], [fn("max", a, 0) for a in after]


def pad_with(call: Call, x: Tensor, before: Sequence[Ix], after: Sequence[Ix], value: Tensor | None) -> Tensor:
    if value is None:
        return call.k.pad(x, before, after, 0)
    if value.dtype != x.dtype or value.elements.const != 1:
        raise Unsupported("the pad value is not one element of the input's type")
    element = value.at([0] * value.rank)
    if isinstance(element.kind, E.Const):
        return call.k.pad(x, before, after, element.kind.value)
    padded = call.k.pad(x, before, after, 0)
    inside = call.k.index_map(padded.shape, "b", lambda w: _inside(w, before, x.shape))
    scalar = call.k.reshape(value, ())
    return call.k.map(E.select, inside, padded, scalar)


def _inside(w: Sequence[Ix], before: Sequence[Ix], sizes: Sequence[Ix]) -> Expr:
    """True where an index of the padded tensor falls on an element of the original."""
    holds = E.const(True, "b")
    for i, b, s in zip(w, before, sizes, strict=True):
        low = E.op("ge", E.index(i), E.index(b))
        high = E.op("lt", E.index(i), E.index(b + s))
        holds = E.op("and", holds, E.op("and", low, high))
    return holds


def _pad_by_index(call: Call, x: Tensor, before: Sequence[Ix], after: Sequence[Ix], mode: str) -> Tensor:
    shape = [b + s + a for b, s, a in zip(before, x.shape, after, strict=True)]
    padded = [b.const != 0 or a.const != 0 for b, a in zip(before, after, strict=True)]
    for size, wanted in zip(x.shape, padded, strict=True):
        if wanted:
            _require_some(call, size)

    def back(w: tuple[Ix, ...]) -> list[Ix]:
        return [
            _bordered(mode, i - b, s, b, a) if wanted else i
            for i, b, a, s, wanted in zip(w, before, after, x.shape, padded, strict=True)
        ]

    return call.k.view(x, shape, back)


def _require_some(call: Call, size: Ix) -> None:
    if size.const == 0:
        raise Unsupported("a border cannot be taken from an empty dimension")
    if size.const is None:
        call.k.require_equal(fn("eq", size, 0), 0, "a border cannot be taken from an empty dimension")


def _bordered(mode: str, place: Ix, size: Ix, before: Ix, after: Ix) -> Ix:
    """Where the element at `place`, which may lie outside [0, size), is taken from."""
    if mode == "edge":
        return fn("min", fn("max", place, 0), size - 1)
    if mode == "wrap":
        return fn("mod", place, size)
    if all(p.const is not None and size.const is not None and p.const < size.const for p in (before, after)):
        mirrored = fn("max", place, -place)
        return fn("min", mirrored, (size - 1) * 2 - mirrored)
    period = (size - 1) * 2
    within = fn("mod", place, period)
    return fn("min", within, period - within)


@op("CenterCropPad", since=18, kind="movement")
def center_crop_pad(call: Call) -> Tensor:
    x = call.x()
    axes = axes_of(call.ints("axes") if call.has("axes") else tuple(range(x.rank)), x.rank)
    wanted = [require_size(call, v, "a target size") for v in values_or_refuse(call, 1)]
    if len(wanted) != len(axes):
        raise Unsupported(f"{len(wanted)} target sizes for {len(axes)} axes")
    starts, sizes, before, after = [ix(0)] * x.rank, list(x.shape), [ix(0)] * x.rank, [ix(0)] * x.rank
    for axis, target in zip(axes, wanted, strict=True):
        size = x.shape[axis]
        starts[axis] = fn("max", size - target, 0) // 2
        sizes[axis] = fn("min", size, target)
        missing = fn("max", target - size, 0)
        before[axis] = missing // 2
        after[axis] = missing - missing // 2
    kept = call.k.slice(x, starts, [1] * x.rank, sizes)
    return kept if all(p.const == 0 for p in (*before, *after)) else call.k.pad(kept, before, after, 0)
