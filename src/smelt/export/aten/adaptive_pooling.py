"""Maxima over windows that divide an axis into a given number of parts.

Input: `aten::adaptive_max_pool2d`, `aten::adaptive_max_pool3d` over known sizes. Output: the maxima and their places.
Invariant: window i of n over m elements is [floor(i m / n), ceil((i + 1) m / n)), as torch has it; windows are gathered
at one length, the shorter ones repeating their last element, which changes neither maximum nor first place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from smelt.export.aten.resampling import static_sizes
from smelt.export.call import Call
from smelt.export.dtypes import INT64
from smelt.export.registry import converter

Value = ir.Value
Table = np.ndarray[Any, Any]


def windows(size: int, parts: int) -> Table:
    """[parts, longest]: the elements of each window."""
    starts = [i * size // parts for i in range(parts)]
    ends = [-(-(i + 1) * size // parts) for i in range(parts)]
    longest = max((end - start for start, end in zip(starts, ends, strict=True)), default=1)
    steps = np.arange(longest)
    return np.stack([np.minimum(start + steps, end - 1) for start, end in zip(starts, ends, strict=True)])


def pooled(call: Call, self: Value, tables: Sequence[Table], sizes: Sequence[int]) -> list[Value]:
    """The maximum of every product of windows, one table per spatial axis, and its flat place."""
    spatial = len(tables)
    lead = call.rank(self) - spatial
    leading = call.all_dims(self)[:lead]
    value = self
    for offset, table in enumerate(tables):
        value = call.op("Gather", value, call.constant(table.reshape(-1), INT64), axis=lead + offset)
    split = [number for table in tables for number in table.shape]
    value = call.reshape(value, [*leading, *split])
    outer, inner = [lead + 2 * k for k in range(spatial)], [lead + 2 * k + 1 for k in range(spatial)]
    value = call.op("Transpose", value, perm=[*range(lead), *outer, *inner])
    parts = [table.shape[0] for table in tables]
    count = math.prod(table.shape[1] for table in tables)
    value = call.reshape(value, [*leading, *parts, count])
    best = call.op("ReduceMax", value, [-1], keepdims=0)
    first = call.op("ArgMax", value, axis=-1, keepdims=1)
    places = call.expand(call.constant(_places(tables, sizes), INT64), [*leading, *parts, count])
    found = call.op("GatherElements", places, first, axis=-1)
    return [best, call.op("Squeeze", found, [-1])]


def _places(tables: Sequence[Table], sizes: Sequence[int]) -> Table:
    """[*parts, elements of a window]: flat places in the input."""
    spatial = len(tables)
    total: Any = 0
    for axis, table in enumerate(tables):
        shape = [1] * (2 * spatial)
        shape[axis], shape[spatial + axis] = table.shape
        total = total * sizes[axis] + table.reshape(shape)
    return total.reshape(*(table.shape[0] for table in tables), -1)


@converter("aten::adaptive_max_pool2d", "aten::adaptive_max_pool3d")
def adaptive_max_pool(call: Call, self: Value, output_size: Sequence[Any]) -> list[Value]:
    sizes = static_sizes(call.all_dims(self)[-len(output_size) :])
    parts = static_sizes(output_size)
    return pooled(call, self, [windows(size, part) for size, part in zip(sizes, parts, strict=True)], sizes)
