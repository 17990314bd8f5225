"""Windows over an image with numpy: the meaning of `Convolution` and `Pool` without a compiler.

Input: the image, the weights and the geometry as numbers. Output: an array. Invariant: tap by tap, so that only what a
window sees takes part.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .tensor import Convolution, Pool
from .window import Geometry

Array = np.ndarray[Any, Any]
Axes = Sequence[Sequence[int]]  # sizes, out, kernel, stride, dilation, before and after


def convolve(convolution: Convolution, image: Array, weights: Array, axes: Axes) -> Array:
    geometry, groups = convolution.geometry, convolution.groups
    stack = weights.reshape(groups, -1, *weights.shape[1:])
    total: Array | None = None
    for tap, found, inside, _ in _taps(geometry, image, axes):
        if not geometry.spread:
            found = np.where(inside, found, 0)  # padding is zeros, which an infinite weight makes NaN
        grouped = found.reshape(found.shape[0], groups, -1, *found.shape[2:])
        here = stack[(..., *tap)]
        rule = "ngc...,gcm->ngm..." if geometry.spread else "ngc...,gmc->ngm..."
        made = np.einsum(rule, grouped, here).reshape(found.shape[0], -1, *found.shape[2:])
        made = np.where(inside, made, 0) if geometry.spread else made
        total = made if total is None else total + made
    assert total is not None
    return total


def pooled(pool: Pool, image: Array, axes: Axes) -> Array:
    total: Array | None = None
    count: Array = np.zeros((1, 1, *axes[1]), image.dtype)
    for _, found, inside, counted in _taps(pool.geometry, image, axes):
        if pool.kind == "max":
            low = -np.inf if image.dtype.kind == "f" else np.iinfo(image.dtype).min
            here = np.where(inside, found, np.asarray(low, image.dtype))
            total = here if total is None else np.maximum(total, here)
        else:
            here = np.where(inside, found, np.asarray(0, image.dtype))
            total = here if total is None else total + here
        count = count + (counted if pool.counted else inside)
    assert total is not None
    return (total / count).astype(image.dtype) if pool.kind == "mean" else total


def _taps(g: Geometry, image: Array, axes: Axes) -> Iterator[tuple[tuple[int, ...], Array, Array, Array]]:
    """What all windows see at each tap; where that is inside of the image, and where of the image or its padding."""
    for tap in itertools.product(*map(range, axes[2])):
        found = image
        inside: Array = np.ones((1,) * image.ndim, bool)
        counted = inside
        for axis, at in enumerate(tap):
            size, out, _, stride, dilation, before, after = (values[axis] for values in axes)
            o: Array = np.arange(out)
            place: Array = o * stride + at * dilation - before
            valid: Array = np.ones(out, bool)
            if g.spread:
                landed: Array = o + before - at * dilation
                place, valid = landed // stride, landed % stride == 0
            along = [-1 if a == axis + 2 else 1 for a in range(image.ndim)]
            inside = inside & (valid & (place >= 0) & (place < size)).reshape(along)
            counted = counted & ((place >= -before) & (place < size + after)).reshape(along)
            found = np.take(found, np.clip(place, 0, max(size - 1, 0)), axis=axis + 2)
        yield tap, found, inside, counted
