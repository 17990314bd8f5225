"""TopK: the largest or smallest elements along an axis, with their indices.

Input: a node; k may come from data of a shape computation. Output: a function in C (`topk_unit.h`). Invariant: best
first, of equals the lower index first, NaN above every number; the same whether or not `sorted` is requested for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from smelt.ir.kernel import Function, Ix, Tensor, Unsupported, ix, product
from smelt.ops.axes import axis_of
from smelt.ops.functions import given, unit

from .registry import Call, op

Array = np.ndarray[Any, Any]


@op("TopK", since=1, kind="function", steps=True)
def topk(call: Call) -> Sequence[Tensor]:
    x = call.x()
    if x.rank == 0 or x.dtype == "b":
        raise Unsupported("TopK of a scalar or of truth values")
    axis, k = axis_of(call.int("axis", -1), x.rank), _count(call)
    largest = call.int("largest", 1) if call.opset >= 11 else 1
    outer, length, inner = product(x.shape[:axis]), x.shape[axis], product(x.shape[axis + 1 :])
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return call.k.function(
        Function(
            name=f"smelt_topk_{x.dtype}",
            text=unit("functions/topk_unit.h", x.dtype),
            operands=(x,),
            results=((shape, x.dtype), (shape, "i64")),
            numbers=(outer, length, inner, k, ix(largest)),
            factors=(),
            scratch_bytes=outer * inner * k * 16,
            flops=x.elements,
            reference=lambda arrays, numbers, _: _ranked(axis, given(arrays), numbers[3], numbers[4]),
        )
    )


def _count(call: Call) -> Ix:
    if call.opset < 10:
        return ix(call.int("k"))
    found = call.values(1)
    if found is None or len(found) != 1:
        raise Unsupported("k is no single number")
    return found[0]


def _ranked(axis: int, x: Array, k: int, largest: int) -> tuple[Array, Array]:
    """By numpy: stable, so of equals the first comes first."""
    keys = _falling(x) if largest else x
    places = np.take(np.argsort(keys, axis=axis, kind="stable"), np.arange(k), axis)
    return np.take_along_axis(x, places, axis), places.astype(np.int64)


def _falling(x: Array) -> Array:
    """Keys whose ascending order is the descending one of x, NaN first."""
    if x.dtype.kind == "f":
        return np.where(np.isnan(x), -np.inf, -x)
    return -np.unique(x, return_inverse=True)[1].reshape(x.shape).astype(np.int64)
