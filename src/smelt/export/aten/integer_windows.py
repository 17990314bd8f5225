"""Convolutions and pools of integers, for which ONNX Runtime has no kernels.

Input: calls over integers, with sizes known beforehand where a window may hang over an edge. Output: values. Invariant:
no detour through floating point: every sum is exact, and wraps as torch's does. A window is cut into its elements: one
strided slice per place in the window holds what lies there for all results.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import onnx_ir as ir

from smelt.export.call import Call
from smelt.export.dtypes import INT64
from smelt.export.records import Refused
from smelt.export.sizes import Dim

Value = ir.Value
MOST_PLACES = 256


@dataclass(frozen=True)
class Window:
    """Per spatial axis: elements in a window, their distance, the distance of windows, and the padding before."""

    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    before: Sequence[int]

    def places(self) -> Iterator[tuple[int, ...]]:
        if math.prod(self.kernel) > MOST_PLACES:
            raise Refused("a large window over integers")
        return product(*(range(size) for size in self.kernel))

    def reach(self, counts: Sequence[Any]) -> list[Any]:
        """Elements from the first window's first to the last window's last, for `counts` windows."""
        return [
            (count - 1) * step + gap * (size - 1) + 1
            for count, step, gap, size in zip(counts, self.strides, self.dilations, self.kernel, strict=True)
        ]


def convolved(
    call: Call, x: Value, weight: Value, bias: Value | None, window: Window, after: Sequence[int], groups: int
) -> Value:
    """(N, C, sizes) with (O, C/groups, kernel): one matrix product over all elements of the windows."""
    spatial = len(window.kernel)
    padded = _padded(call, x, window.before, after, 0)
    counts = [
        (_plain(size) - reach) // step + 1
        for size, reach, step in zip(
            call.all_dims(padded)[-spatial:], window.reach([1] * spatial), window.strides, strict=True
        )
    ]
    batch, channels = call.dim(x, 0), _plain(call.dim(x, 1))
    made, depth = _plain(call.dim(weight, 0)), channels // groups * math.prod(window.kernel)
    columns = [call.op("Unsqueeze", part, [2]) for part in _slices(call, padded, window, counts)]
    joined = call.op("Concat", *columns, axis=2) if len(columns) > 1 else columns[0]
    cells = call.op("Reshape", joined, call.vector([batch, groups, depth, math.prod(counts)]))
    rows = call.op("Reshape", weight, call.vector([1, groups, made // groups, depth]))
    result = call.op("Reshape", call.op("MatMul", rows, cells), call.vector([batch, made, *counts]))
    return result if bias is None else call.op("Add", result, call.op("Reshape", bias, [made, *[1] * spatial]))


def spread(call: Call, x: Value, weight: Value, window: Window, extra: Sequence[int], groups: int) -> Value:
    """The transposed convolution: zeros between the elements, then a convolution with the kernel flipped around."""
    spatial = len(window.kernel)
    for axis, step in enumerate(window.strides, 2):
        x = _with_gaps(call, x, axis, step)
    outer = [gap * (size - 1) for gap, size in zip(window.dilations, window.kernel, strict=True)]
    before = [whole - cut for whole, cut in zip(outer, window.before, strict=True)]
    after = [pad + more for pad, more in zip(before, extra, strict=True)]
    flipped = Window(window.kernel, [1] * spatial, window.dilations, before)
    return convolved(call, x, _flipped(call, weight, spatial, groups), None, flipped, after, groups)


def _flipped(call: Call, weight: Value, spatial: int, groups: int) -> Value:
    """(C, O/groups, kernel) -> (O, C/groups, kernel), backwards along the kernel."""
    channels, made, *kernel = call.all_dims(weight)
    axes = list(range(2, 2 + spatial))
    back = call.op("Slice", weight, [-1] * spatial, [-(1 << 62)] * spatial, axes, [-1] * spatial)
    apart = call.op("Reshape", back, call.vector([groups, _plain(channels) // groups, made, *kernel]))
    swapped = call.op("Transpose", apart, perm=[0, 2, 1, *range(3, 3 + spatial)])
    return call.reshape(swapped, [groups * _plain(made), _plain(channels) // groups, *kernel])


def _with_gaps(call: Call, x: Value, axis: int, step: int) -> Value:
    if step == 1:
        return x
    dims = call.all_dims(x)
    size = _plain(dims[axis])
    apart = call.reshape(x, [*dims[: axis + 1], 1, *dims[axis + 1 :]])
    pads = [0] * (2 * len(dims) + 2)
    pads[len(dims) + 1 + axis + 1] = step - 1
    wide = call.op("Reshape", call.op("Pad", apart, pads), call.vector([*dims[:axis], size * step, *dims[axis + 1 :]]))
    cut = [*dims[:axis], (size - 1) * step + 1, *dims[axis + 1 :]]
    return call.op("Slice", wide, [0], [cut[axis]], [axis], shape=[d if isinstance(d, int) else str(d) for d in cut])


def largest(call: Call, x: Value, window: Window) -> tuple[Value, Value]:
    """Maxima and, of each, the place in its channel; of equal ones the first, as in torch."""
    sizes, counts = _known_sizes(call, x, len(window.kernel))
    lowest = np.iinfo(x.dtype.numpy() if x.dtype is not None else np.int64).min
    padded = _padded(call, x, window.before, _overhang(window, sizes, counts), int(lowest))
    places = [_place_of(window, place, sizes, counts) for place in window.places()]
    inside = np.stack([np.where(place < 0, np.iinfo(np.int64).max, place) for place in places])
    at = call.constant(np.take_along_axis(np.stack(places), inside.argmin(0)[None], 0)[0], INT64)
    best: Value | None = None
    for part, place in zip(_slices(call, padded, window, counts), places, strict=True):
        if best is None:
            best = part
            at = call.expand(at, call.all_dims(part))
            continue
        newer = call.op("Greater", part, best)
        best = call.op("Where", newer, part, best)
        at = call.op("Where", newer, call.constant(place, INT64), at)
    assert best is not None
    return best, at


def averages(call: Call, x: Value, window: Window, include_pad: bool, divisor: int | None) -> Value:
    """Sums divided by the number of elements, rounded toward zero."""
    sizes, counts = _known_sizes(call, x, len(window.kernel))
    padded = _padded(call, x, window.before, _overhang(window, sizes, counts), 0)
    parts = list(_slices(call, padded, window, counts))
    total = parts[0]
    for part in parts[1:]:
        total = call.op("Add", total, part)
    shares = _shares(window, sizes, counts, include_pad) if divisor is None else np.array(divisor)
    return call.op("Div", total, call.constant(shares, x.dtype))


def _shares(window: Window, sizes: Sequence[int], counts: Sequence[int], include_pad: bool) -> Any:
    """How many elements each window has; those beyond the padding never count."""
    axes: list[Any] = []
    for size, count, step, reach, pad in zip(sizes, counts, window.strides, window.kernel, window.before, strict=True):
        start = np.arange(count) * step - pad
        end = np.minimum(start + reach, size + pad)
        axes.append(end - start if include_pad else np.minimum(end, size) - np.maximum(start, 0))
    total = axes[0]
    for axis in axes[1:]:
        total = total[..., None] * axis
    return total


def _place_of(window: Window, place: Sequence[int], sizes: Sequence[int], counts: Sequence[int]) -> Any:
    """Where in its channel the element of every window lies; negative outside."""
    flat, inside = np.zeros((), np.int64), np.ones((), bool)
    for axis, (size, count) in enumerate(zip(sizes, counts, strict=True)):
        at = np.arange(count) * window.strides[axis] + place[axis] * window.dilations[axis] - window.before[axis]
        flat, inside = flat[..., None] * size + at, inside[..., None] & (at >= 0) & (at < size)
    return np.where(inside, flat, -1)


def _slices(call: Call, padded: Value, window: Window, counts: Sequence[Any]) -> Iterator[Value]:
    """What lies at each place of the window, for all windows."""
    axes = list(range(call.rank(padded) - len(window.kernel), call.rank(padded)))
    for place in window.places():
        start = [at * gap for at, gap in zip(place, window.dilations, strict=True)]
        end = [s + (n - 1) * step + 1 for s, n, step in zip(start, counts, window.strides, strict=True)]
        dims = [*call.all_dims(padded)[: axes[0]], *counts]
        shape = [dim if isinstance(dim, int) else str(dim) for dim in dims]
        yield call.op("Slice", padded, start, end, axes, list(window.strides), shape=shape)


def _padded(call: Call, x: Value, before: Sequence[int], after: Sequence[int], filler: int) -> Value:
    if not any(before) and not any(after):
        return x
    lead = call.rank(x) - len(before)
    sizes = [_plain(size) + b + a for size, b, a in zip(call.all_dims(x)[lead:], before, after, strict=True)]
    shape = [dim if isinstance(dim, int) else str(dim) for dim in [*call.all_dims(x)[:lead], *sizes]]
    pads = [*[0] * lead, *before, *[0] * lead, *after]
    return call.op("Pad", x, pads, call.constant(filler, x.dtype), shape=shape)


def _overhang(window: Window, sizes: Sequence[int], counts: Sequence[int]) -> list[int]:
    """Padding after, so that the last window is whole."""
    return [max(0, r - s - b) for r, s, b in zip(window.reach(counts), sizes, window.before, strict=True)]


def _known_sizes(call: Call, x: Value, spatial: int) -> tuple[list[int], list[int]]:
    return [_plain(d) for d in call.all_dims(x)[-spatial:]], [_plain(d) for d in call.dims[-spatial:]]


def _plain(size: Dim) -> int:
    if not isinstance(size, int):
        raise Refused("windows over integers of a size that varies")
    return size
