"""Distances between rows, and products of three operands.

Input: calls. Output: values. Invariant: differences are formed first and summed after, as torch does for exactness, so
memory is that of all pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from smelt.export.call import Call
from smelt.export.dtypes import INT64
from smelt.export.records import Refused
from smelt.export.registry import converter

Value = ir.Value


def _norm(call: Call, difference: Value, p: float) -> Value:
    size = call.op("Abs", difference)
    if p == 0:
        unequal = call.op("Not", call.op("Equal", size, call.scalar(0.0)))
        return call.op("ReduceSum", call.cast(unequal), [-1], keepdims=0)
    if p == 1:
        return call.op("ReduceSum", size, [-1], keepdims=0)
    if p == 2:
        return call.op("Sqrt", call.op("ReduceSum", call.op("Mul", size, size), [-1], keepdims=0))
    if p == math.inf:
        return call.op("ReduceMax", size, [-1], keepdims=0)
    total = call.op("ReduceSum", call.op("Pow", size, call.scalar(p)), [-1], keepdims=0)
    return call.op("Pow", total, call.scalar(1.0 / p))


@converter("aten::_cdist_forward", "aten::cdist")
def cdist(call: Call, x1: Value, x2: Value, p: float = 2.0, compute_mode: int | None = None) -> Value:
    """How torch computes (`compute_mode`) does not matter here."""
    if call.dim(x1, -1) == 0:
        return call.filled(call.dims, 0.0)
    return _norm(call, call.op("Sub", call.op("Unsqueeze", x1, [-2]), call.op("Unsqueeze", x2, [-3])), p)


@converter("aten::_pdist_forward")
def pdist(call: Call, self: Value, p: float = 2.0) -> Value:
    count = call.dim(self, 0)
    if not isinstance(count, int):
        raise Refused("distances within a number of rows that is not known")
    left, right = np.triu_indices(count, 1)
    first, second = (call.op("Gather", self, call.constant(rows, INT64), axis=0) for rows in (left, right))
    return _norm(call, call.op("Sub", first, second), p)


@converter("aten::_trilinear")
def trilinear(
    call: Call, i1: Value, i2: Value, i3: Value, expand1: Sequence[int], expand2: Sequence[int],
    expand3: Sequence[int], sumdim: Sequence[int], unroll_dim: int = 1,
) -> Value:  # fmt: skip
    """The sum over some axes of a product of three, each with axes of one element put in."""

    def spread(value: Value, axes: Sequence[int]) -> Value:
        return call.op("Unsqueeze", value, list(axes)) if axes else value

    product = call.op("Mul", call.op("Mul", spread(i1, expand1), spread(i2, expand2)), spread(i3, expand3))
    return call.op("ReduceSum", product, list(sumdim), keepdims=0) if sumdim else product
