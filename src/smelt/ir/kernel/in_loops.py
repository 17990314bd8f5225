"""Convolutions and pools as reductions over index maps: what they mean, for a backend that has no kernel for them.

Input: the operands of a `Convolution` or `Pool`. Output: the same result as maps, views and reductions. Invariant: a
view never reads outside of the image; padding is selected, not read.
"""

from __future__ import annotations

from . import expr as E
from .builder import Builder
from .expr import Expr
from .index import Ix, fn, ix
from .layout import Index
from .tensor import Tensor, View
from .window import Geometry

LEAST = {"f32": float("-inf"), "f64": float("-inf"), "i8": -128, "u8": 0}


def convolution_in_loops(k: Builder, x: Tensor, weights: Tensor, g: Geometry, groups: int) -> Tensor:
    """(N, M, *out, C, *kernel) summed over the last axes."""
    images, rank = im2col(k, x, g, 0), g.rank
    rows, columns = weights.shape[:2]
    each = columns if g.spread else ix((rows.const or 0) // groups)
    inner = ix((rows.const or 0) // groups) if g.spread else columns
    shape = (x.shape[0], each * groups, *g.out, inner, *g.kernel)

    def channel(w: Index) -> Ix:
        return w[2 + rank] if groups == 1 else (w[1] // each) * inner + w[2 + rank]

    def weight_at(w: Index) -> tuple[Ix, ...]:
        if g.spread:
            return (channel(w), w[1] if groups == 1 else w[1] % each, *w[3 + rank :])
        return (w[1], w[2 + rank], *w[3 + rank :])

    seen_by = k.view(images, shape, lambda w: (w[0], channel(w), *w[2 : 2 + rank], *w[3 + rank :]))
    products = k.map(lambda a, b: E.op("mul", a, b), seen_by, k.view(weights, shape, weight_at))
    return _over_taps(k, "sum", products, rank + 1)


def pool_in_loops(k: Builder, kind: str, x: Tensor, g: Geometry, *, counted: bool) -> Tensor:
    if kind == "max":
        return _over_taps(k, "max", im2col(k, x, g, LEAST[x.dtype]), g.rank)
    total = _over_taps(k, "sum", im2col(k, x, g, 0), g.rank)
    if kind == "sum":
        return total
    return k.map(lambda t, c: E.op("div", t, c), total, seen_taps(k, g, x.dtype, counted=counted))


def seen_taps(k: Builder, g: Geometry, dtype: str, *, counted: bool) -> Tensor:
    """(1, 1, *out): how many elements of each window lie in the image (or in its padding, where that is counted)."""
    return _over_taps(k, "sum", k.map(lambda e: e, seen(k, g, dtype, counted=counted)), g.rank)


def _over_taps(k: Builder, kind: str, windows: Tensor, axes: int) -> Tensor:
    inner = list(range(windows.rank - axes, windows.rank))
    return k.squeeze(k.reduce(kind, windows, inner), inner)


def im2col(k: Builder, x: Tensor, g: Geometry, fill: float | int) -> Tensor:
    """What every window sees: (N, C, *out, *kernel), `fill` outside of the image."""
    require_pixels(k, x, g)
    outside = E.const(fill, x.dtype)

    def at(w: Index) -> Expr:
        places = [_place(g, axis, w[2 + axis], w[2 + g.rank + axis]) for axis in range(g.rank)]
        inside = [fn("max", fn("min", p, s - 1), 0) for p, s in zip(places, g.sizes, strict=True)]
        element = x.at((w[0], w[1], *inside))
        for axis, (place, kept) in enumerate(zip(places, inside, strict=True)):
            if place != kept:
                element = E.select(E.op("eq", E.index(place), E.index(kept)), element, outside)
            element = _on_grid(g, axis, w[2 + axis], w[2 + g.rank + axis], element, outside)
        return element

    return k.make((*x.shape[:2], *g.out, *g.kernel), x.dtype, View(at, x))


def seen(k: Builder, g: Geometry, dtype: str, *, counted: bool) -> Tensor:
    """(1, 1, *out, *kernel): 1 where a window's element counts, 0 outside of the image (and of its padding)."""
    one, zero = E.const(1, dtype), E.const(0, dtype)

    def at(w: Index) -> Expr:
        element = one
        for axis in range(g.rank):
            place = _place(g, axis, w[2 + axis], w[2 + g.rank + axis])
            low = ix(0) - g.before[axis] if counted else ix(0)
            high = g.sizes[axis] + (g.after[axis] if counted else 0) - 1
            kept = fn("max", fn("min", place, high), low)
            if place != kept:
                element = E.select(E.op("eq", E.index(place), E.index(kept)), element, zero)
        return element

    return k.make((1, 1, *g.out, *g.kernel), dtype, View(at, None))


def _place(g: Geometry, axis: int, o: Ix, tap: Ix) -> Ix:
    if not g.spread:
        return o * g.stride[axis] + tap * g.dilation[axis] - g.before[axis]
    return (o + g.before[axis] - tap * g.dilation[axis]) // g.stride[axis]


def _on_grid(g: Geometry, axis: int, o: Ix, tap: Ix, element: Expr, outside: Expr) -> Expr:
    """A transposed convolution sees a pixel only at whole steps."""
    if not g.spread or g.stride[axis] == 1:
        return element
    step = (o + g.before[axis] - tap * g.dilation[axis]) % g.stride[axis]
    return E.select(E.op("eq", E.index(step), E.const(0, "i64")), element, outside)


def require_pixels(k: Builder, x: Tensor, g: Geometry) -> None:
    """An image without pixels has nothing to read, not even where the result is padding; of no images nothing is."""
    for size in g.sizes:
        empty = fn("sel", fn("eq", x.shape[0], 0), 0, fn("eq", size, 0))
        k.require_equal(empty, 0, "an image must not be empty")
