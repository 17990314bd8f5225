"""Weighted sums of a few elements along axes of a tensor: interpolation.

Input: for each axis the elements that a position is made of, and their weights. Output: an index map with its shape.
Invariant: several axes at once give the sums that one axis after the other gives, in one expression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import expr as E
from .expr import Expr
from .index import Ix
from .layout import Index
from .tensor import Tensor


@dataclass(frozen=True)
class Taps:
    """One resized axis: the elements that position i is made of, and their weights."""

    axis: int
    after: Ix
    places: tuple[Callable[[Ix], Ix], ...]
    weights: tuple[Tensor, ...]


def weighted(x: Tensor, taps: Sequence[Taps]) -> tuple[Index, Callable[[Index], Expr]]:
    """The shape and the elements of the weighted sums along some axes, in one go."""
    after = {t.axis: t.after for t in taps}
    shape = tuple(after.get(n, s) for n, s in enumerate(x.shape))
    return shape, lambda w: _element(x, w, list(w), taps)


def _element(x: Tensor, out: Index, where: list[Ix], taps: Sequence[Taps]) -> Expr:
    if not taps:
        return x.at(where)
    first, *others = taps
    total: Expr | None = None
    for place, weight in zip(first.places, first.weights, strict=True):
        i = out[first.axis]
        moved = [place(i) if n == first.axis else w for n, w in enumerate(where)]
        term = E.op("mul", _element(x, out, moved, others), E.cast(weight.at([i]), x.dtype))
        total = term if total is None else E.op("add", total, term)
    assert total is not None
    return total
