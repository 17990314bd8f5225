"""MaxPool that also says where its maxima lie.

Input: an image and its windows' geometry. Output: maxima, and their places, each one number. Invariant: the first of
equals is taken, in the order of the window; a NaN counts as largest; padding is never
chosen where a window sees anything else.
"""

from __future__ import annotations

import itertools
from typing import Final

from smelt.ir.kernel import Expr, Geometry, Ix, Tensor, Unsupported, fn, ix, product
from smelt.ir.kernel import expr as E
from smelt.ops.registry import Call

Index = tuple[Ix, ...]
LOWEST: Final = {"f32": -3.4028234663852886e38, "f64": -1.7976931348623157e308}
MOST_TAPS = 128  # each of which is code of its own


def maxima_with_places(call: Call, x: Tensor, g: Geometry) -> list[Tensor]:
    if x.dtype not in E.FLOATS:
        raise Unsupported(f"the places of maxima of {x.dtype}")
    if g.taps > MOST_TAPS:
        raise Unsupported(f"the places of the maxima of {g.taps} elements")
    for size in g.sizes:
        call.k.require_equal(fn("eq", size, 0), 0, "an image must not be empty")
    by_columns = call.int("storage_order", 0) != 0

    def largest(w: Index) -> tuple[Expr, Expr]:
        return _largest(x, g, w, by_columns)

    k, shape = call.k, (*x.shape[:2], *g.out)
    return [k.tabulate(x, shape, lambda w: largest(w)[0]), k.tabulate(x, shape, lambda w: largest(w)[1], "i64")]


def _largest(x: Tensor, g: Geometry, w: Index, by_columns: bool) -> tuple[Expr, Expr]:
    """The largest element that the window at w sees, and its place."""
    outside = tuple(ix(-1) for _ in range(g.rank))  # of a window that sees padding alone, as in stock
    best, where = E.const(LOWEST[x.dtype], x.dtype), E.index(_number(x, g, (*w[:2], *outside), by_columns))
    found = E.const(False, "b")
    for tap in itertools.product(*(range(size) for size in g.kernel)):
        places = [o * s + t * d - b for o, s, t, d, b in zip(w[2:], g.stride, tap, g.dilation, g.before, strict=True)]
        kept = [fn("max", fn("min", p, size - 1), 0) for p, size in zip(places, g.sizes, strict=True)]
        element, inside = x.at((*w[:2], *kept)), _all_equal(places, kept)
        better = _both(inside, _either(_not(found), _beats(element, best)))
        best = E.select(better, element, best)
        where = E.select(better, E.index(_number(x, g, (*w[:2], *kept), by_columns)), where)
        found = _either(found, inside)
    return best, where


def _beats(element: Expr, best: Expr) -> Expr:
    first_nan = _both(E.op("isnan", element), _not(E.op("isnan", best)))
    return _either(E.op("gt", element, best), first_nan)


def _all_equal(places: list[Ix], kept: list[Ix]) -> Expr:
    inside = E.const(True, "b")
    for place, same in zip(places, kept, strict=True):
        if place != same:
            inside = _both(inside, E.op("eq", E.index(place), E.index(same)))
    return inside


def _number(x: Tensor, g: Geometry, where: Index, by_columns: bool) -> Ix:
    """Images after each other, their pixels row by row or column by column."""
    axes = range(g.rank) if not by_columns else range(g.rank - 1, -1, -1)
    within = ix(0)
    for axis in axes:
        within = within * g.sizes[axis] + where[2 + axis]
    return (where[0] * x.shape[1] + where[1]) * product(g.sizes) + within


def _both(a: Expr, b: Expr) -> Expr:
    if isinstance(a.kind, E.Const):
        return b if a.kind.value else a
    if isinstance(b.kind, E.Const):
        return a if b.kind.value else b
    return E.op("and", a, b)


def _either(a: Expr, b: Expr) -> Expr:
    if isinstance(a.kind, E.Const):
        return a if a.kind.value else b
    if isinstance(b.kind, E.Const):
        return b if b.kind.value else a
    return E.op("or", a, b)


def _not(a: Expr) -> Expr:
    return E.const(not a.kind.value, "b") if isinstance(a.kind, E.Const) else E.op("not", a)
