"""RoiAlign: regions of images, each pooled to a grid of bins.

Input: a node; regions come at run time. Output: a function in C (`roi_align_unit.h`). Invariant: float32; points and
weights as ONNX Runtime computes them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from smelt.ir.kernel import Function, Tensor, Unsupported, ix
from smelt.ir.kernel.tensor import Arrays
from smelt.ops.functions import given

from .registry import Call, op

Array = np.ndarray[Any, Any]


@op("RoiAlign", since=10, kind="function")
def roi_align(call: Call) -> Tensor:
    x, regions, images = call.x(0), call.x(1), call.x(2)
    if (x.rank, regions.rank, images.rank) != (4, 2, 1) or (x.dtype, regions.dtype, images.dtype) != (
        "f32",
        "f32",
        "i64",
    ):
        raise Unsupported("images, regions or indices of another type or rank")
    call.k.require_equal(regions.shape[1], 4, "a region has four numbers")
    call.k.require_equal(regions.shape[0], images.shape[0], "there must be an image for each region")
    mode, down, across = call.str("mode", "avg"), call.int("output_height", 1), call.int("output_width", 1)
    ratio = call.int("sampling_ratio", 0)
    usual = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    half = call.str("coordinate_transformation_mode", usual) == "half_pixel"
    if mode not in ("avg", "max") or min(down, across) < 1 or ratio < 0:
        raise Unsupported(f"mode {mode!r} or a grid of no bins")
    count, numbers = images.shape[0], (down, across, ratio, int(mode == "max"), int(half))
    function = Function(
        name="smelt_roi_align", text="#include <smelt/functions/roi_align_unit.h>\n", operands=(x, regions, images),
        results=(((count, x.shape[1], ix(down), ix(across)), "f32"),),
        numbers=(*x.shape, count, *(ix(n) for n in numbers)), factors=(call.float("spatial_scale", 1.0),),
        scratch_bytes=ix(0), flops=count * x.shape[1] * (down * across * 8 * max(ratio, 1) ** 2), reference=_aligned,
    )  # fmt: skip
    return call.k.function(function)[0]


def _aligned(arrays: Arrays, numbers: Sequence[int], factors: Sequence[float]) -> tuple[Array]:
    x, regions, images = (given(arrays, place) for place in range(3))
    down, across, ratio, largest, half = numbers[5:10]
    out = np.zeros((len(images), x.shape[1], down, across), x.dtype)
    for n, (region, image) in enumerate(zip(regions * factors[0] - 0.5 * half, images, strict=True)):
        x0, y0, x1, y1 = region
        least = -math.inf if half else 1.0
        high, wide = max(y1 - y0, least) / down, max(x1 - x0, least) / across
        grid = ratio or max(math.ceil(high), 0), ratio or max(math.ceil(wide), 0)
        for row, col in np.ndindex(down, across):
            corners = [
                _corners(x[image], y0 + (row + (i + 0.5) / grid[0]) * high, x0 + (col + (j + 0.5) / grid[1]) * wide)
                for i, j in itertools.product(range(grid[0]), range(grid[1]))
            ]
            if corners:
                every = np.array(corners)
                out[n, :, row, col] = every.max((0, 1)) if largest else every.sum(1).mean(0)
    return (out,)


def _corners(image: Array, y: float, x: float) -> list[Array]:
    """The four weighted neighbours of a point, for all channels."""
    height, width = image.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return [np.zeros(len(image), image.dtype)] * 4
    return [image[:, i, j] * (v * w) for i, v in _neighbours(y, height) for j, w in _neighbours(x, width)]


def _neighbours(at: float, size: int) -> Iterator[tuple[int, float]]:
    low = int(max(at, 0))
    if low >= size - 1:
        yield from ((size - 1, 1.0), (size - 1, 0.0))
    else:
        yield from ((low, 1 - (max(at, 0) - low)), (low + 1, max(at, 0) - low))
