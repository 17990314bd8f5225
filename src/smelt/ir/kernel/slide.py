"""Windows over an image with numpy: the meaning of `Window` without a compiler.

Input: the image, the panels of its weights and the geometry as numbers. Output: an array in NHWC. Invariant:
tap by tap, so that only what a window sees takes part.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import winograd
from .tensor import Window

Array = np.ndarray[Any, Any]


def slide(
    window: Window, image: Array, panels: Array | None, places: Sequence[Sequence[int]], shape: tuple[int, ...]
) -> Array:
    """`places` are sizes, out, kernel, stride, dilation, before and after of three axes."""
    sizes, out, kernel = places[:3]
    batch, columns = shape[0], shape[-1]
    image = np.moveaxis(image, 1, -1) if window.nchw else image
    pixels = image.reshape(batch, *sizes, image.shape[-1])
    low = window.kind == "max"
    total = np.full((batch, *out, columns), -np.inf if low else 0, image.dtype)
    count = np.zeros((1, *out, 1), image.dtype)
    for number, tap in enumerate(itertools.product(*map(range, kernel))):
        found, inside, counted = _at_tap(window, pixels, places, tap)
        if low:
            total = np.where(inside, np.maximum(total, found), total)
        else:
            weighed = found if panels is None else _weighed(window, found, panels, number, math.prod(kernel), columns)
            total = total + np.where(inside, weighed, 0)
        count = count + counted
    return (total / count if window.kind == "mean" else total).reshape(shape)


def _at_tap(
    window: Window, pixels: Array, places: Sequence[Sequence[int]], tap: Sequence[int]
) -> tuple[Array, Array, Array]:
    """What all windows see at one tap; where that is inside of the image, and where it counts."""
    found = pixels
    inside: Array = np.ones((1, 1, 1, 1, 1), bool)
    counted = inside
    for axis in range(3):
        size, out, _, stride, dilation, before, after = (values[axis] for values in places)
        o: Array = np.arange(out)
        place: Array = o * stride + tap[axis] * dilation - before
        valid: Array = np.ones(out, bool)
        if window.geometry.spread:
            landed: Array = o + before - tap[axis] * dilation
            place, valid = landed // stride, landed % stride == 0
        along = [-1 if a == axis + 1 else 1 for a in range(5)]
        inside = inside & (valid & (place >= 0) & (place < size)).reshape(along)
        counted = counted & ((place >= -before) & (place < size + after)).reshape(along)
        found = np.take(found, np.clip(place, 0, max(size - 1, 0)), axis=axis + 1)
    return found, inside, counted if window.counted else inside


def _weighed(window: Window, found: Array, panels: Array, tap: int, taps: int, columns: int) -> Array:
    matrices = np.moveaxis(panels, -3, -2).reshape(*panels.shape[:-3], panels.shape[-2], -1)
    if window.kind == "winograd":
        return found @ winograd.taps(matrices)[tap][:, :columns]
    if window.kind == "depthwise":
        return found * matrices[tap, :columns]
    each = columns // window.groups
    if window.kind == "narrow":
        here = matrices[tap * each : (tap + 1) * each, :columns].reshape(each, window.groups, each)
        grouped = found.reshape(*found.shape[:-1], window.groups, each)
        return np.einsum("...gc,cgm->...gm", grouped, here).reshape(*found.shape[:-1], columns)
    if window.kind == "dots":
        return _dotted(window, found, matrices, tap, each)
    order = (window.groups, -1, taps) if window.nchw else (window.groups, taps, -1)
    stack = matrices.reshape(*order, matrices.shape[-1])
    stack = (stack[:, :, tap] if window.nchw else stack[:, tap])[..., :each]
    grouped = found.reshape(*found.shape[:-1], window.groups, -1)
    return np.einsum("...gc,gcm->...gm", grouped, stack).reshape(*found.shape[:-1], columns)


def _dotted(window: Window, found: Array, matrices: Array, tap: int, each: int) -> Array:
    """As `dense` with the weights of a tap, which lie in its line, filled up to whole panels."""
    line, depth = window.geometry.kernel[-1], found.shape[-1] // window.groups
    lines = matrices.reshape(window.groups, each, window.geometry.taps // line, -1)[..., : line * depth]
    here = lines[:, :, tap // line].reshape(window.groups, each, line, depth)[:, :, tap % line]
    grouped = found.reshape(*found.shape[:-1], window.groups, depth)
    return np.einsum("...gc,gmc->...gm", grouped, here).reshape(*found.shape[:-1], window.groups * each)
