"""GridSample: an image sampled at places that come from data.

Input: an image (N, C, *sizes) and a grid (N, *places, d), d 2 or 3. Output: a function in C (`grid_sample_unit.h`).
Invariant: corners and weights of a place serve all channels; cubic interpolation stays with ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as combinations
from typing import Any

import numpy as np

from smelt.ir.kernel import Function, Tensor, Unsupported, ix, product
from smelt.ops.functions import given, unit

from .registry import Call, op

Array = np.ndarray[Any, Any]
_MODES = {"linear": 0, "bilinear": 0, "nearest": 1}
_PADDINGS = ("zeros", "border", "reflection")


@op("GridSample", since=16, kind="function")
def grid_sample(call: Call) -> Tensor:
    x, grid = call.x(0), call.x(1)
    mode, padding = call.str("mode", "linear"), call.str("padding_mode", "zeros")
    align, d = call.int("align_corners", 0), x.rank - 2
    if x.dtype != "f32" or grid.dtype != "f32" or d not in (2, 3) or grid.rank != x.rank:
        raise Unsupported("a grid of other than float32 over two or three axes")
    if mode not in _MODES or padding not in _PADDINGS:
        raise Unsupported(f"mode {mode!r} with padding {padding!r}")
    call.k.require_equal(grid.shape[-1], d, "a place has one coordinate per axis")
    call.k.require_equal(grid.shape[0], x.shape[0], "images and grids must be as many")
    places = product(grid.shape[1:-1])
    numbers = (x.shape[0], x.shape[1], places, ix(d), ix(_MODES[mode]), ix(_PADDINGS.index(padding)), ix(align))
    shape = (*x.shape[:2], *grid.shape[1:-1])
    return call.k.function(
        Function(
            name="smelt_grid_sample_f32", text=unit("functions/grid_sample_unit.h", "f32"), operands=(x, grid),
            results=((shape, "f32"),), numbers=(*numbers, *x.shape[2:]), factors=(), scratch_bytes=ix(0),
            flops=product(shape) * 2 ** (d + 1),
            reference=lambda arrays, numbers, _: (_sampled(given(arrays), given(arrays, 1), numbers[4:7]),),
        )
    )[0]  # fmt: skip


def _sampled(x: Array, grid: Array, how: Sequence[int]) -> Array:
    """The same by numpy. Coordinates are rounded as float32: which corner is nearest may depend on it."""
    mode, padding, align = how
    sizes = x.shape[2:]
    axes = [_coordinates(grid[..., len(sizes) - 1 - a].astype(np.float32), size, how) for a, size in enumerate(sizes)]
    images = np.arange(len(x)).reshape(-1, *[1] * len(sizes))
    out = np.zeros((len(x), *grid.shape[1:-1], x.shape[1]), x.dtype)
    for corner in combinations((0, 1), repeat=0 if mode else len(sizes)):
        weight, index = np.ones(grid.shape[:-1]), list[Array]()
        for a, size in enumerate(sizes):
            floor = axes[a] if mode else np.floor(axes[a])
            far = corner[a] if corner else 0
            share = np.ones_like(floor) if mode else (axes[a] - floor if far else floor + 1 - axes[a])
            at, inside = _corner(floor + far, size, padding, align)
            weight = weight * np.where(inside, share, 0)
            index.append(at)
        values = np.moveaxis(x, 1, -1)[(images, *index)]
        out += np.where(weight[..., None] == 0, 0, weight[..., None] * values)
    return np.moveaxis(out, -1, 1)


def _coordinates(places: Array, size: int, how: Sequence[int]) -> Array:
    mode, padding, align = how
    n, one, two = np.float32(size), np.float32(1), np.float32(2)
    x = (places + one) / two * (n - one) if align else ((places + one) * n - one) / two
    x = np.rint(x) if mode else x
    low, high = _bounds(size, align)
    outside = (x < low) | (x > high)
    if padding == 1:
        return np.where(outside, np.clip(x, 0, n - one), x)
    return np.where(outside, _reflected(x, low, high), x) if padding == 2 else x


def _bounds(size: int, align: int) -> tuple[np.float32, np.float32]:
    return (np.float32(0), np.float32(size - 1)) if align else (np.float32(-0.5), np.float32(size - 0.5))


def _reflected(x: Array, low: np.float32, high: np.float32) -> Array:
    span = high - low
    if span <= 0:
        return np.full_like(x, low)
    distance = np.where(x < low, low - x, np.where(x > high, x - high, 0)).astype(np.float32)
    whole = np.floor(distance / span)
    rest, odd = distance - whole * span, whole % 2 == 1
    return np.where(distance == 0, x, np.where((x < low) != odd, low + rest, high - rest))


def _corner(x: Array, size: int, padding: int, align: int) -> tuple[Array, Array]:
    """Integer places within the axis, and whether they count."""
    if padding == 2:
        x = _reflected(x, *_bounds(size, align))
    inside = (x >= 0) & (x <= size - 1)
    at = np.where(inside, x, np.where(x > 0, size - 1, 0)).astype(np.int64)
    return at, inside if padding == 0 else np.ones_like(inside)
