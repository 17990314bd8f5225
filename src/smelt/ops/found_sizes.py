"""Ops whose results have as many elements as the data say: NonZero, Compress, Unique.

Input: a node. Output: functions in C that find the size and fill their results. Invariant: the size is a symbol of the
output's own, with the most that it can be; what follows in the region is launched after the function has run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from smelt.ir.kernel import Function, Ix, Tensor, Unsupported, ix, of, product
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.tensor import Arrays
from smelt.ops.axes import axis_of
from smelt.ops.functions import given, unit

from .registry import Call, op

Array = np.ndarray[Any, Any]


@op("NonZero", since=9, kind="function")
def nonzero(call: Call) -> Tensor:
    x = call.x()
    if x.rank == 0:
        raise Unsupported("NonZero of a scalar")
    count = call.found_size(0, 1)
    function = Function(
        name="smelt_places", text="#include <smelt/functions/places_unit.h>\n", operands=(call.k.cast(x, "b"),),
        results=(((ix(x.rank), of(count)), "i64"),), numbers=(x.elements, ix(x.rank), *x.shape), factors=(),
        scratch_bytes=ix(0), flops=x.elements, found=((count, x.elements),),
        reference=_numpy(lambda arrays: (np.array(np.nonzero(given(arrays)), np.int64),)),
    )  # fmt: skip
    return call.k.function(function)[0]


def _numpy(rule: Callable[[Arrays], tuple[Array, ...]]) -> Callable[..., tuple[Array, ...]]:
    """A reference that needs no numbers."""

    def reference(arrays: Arrays, numbers: Sequence[int], factors: Sequence[float]) -> tuple[Array, ...]:
        del numbers, factors
        return rule(arrays)

    return reference


@op("Compress", since=9, kind="function")
def compress(call: Call) -> Tensor:
    x, condition = call.x(0), call.x(1)
    if condition.rank != 1 or condition.dtype != "b" or x.rank == 0:
        raise Unsupported("Compress by other than a vector of truth values, or of a scalar")
    x, axis = _along(call, x)
    count = call.found_size(0, axis)
    outer, length, inner = product(x.shape[:axis]), x.shape[axis], product(x.shape[axis + 1 :])
    shape = (*x.shape[:axis], of(count), *x.shape[axis + 1 :])
    function = Function(
        name="smelt_compress", text="#include <smelt/functions/compress_unit.h>\n", operands=(x, condition),
        results=((shape, x.dtype),), factors=(), scratch_bytes=ix(0), flops=x.elements, found=((count, length),),
        numbers=(outer, length, inner * E.SIZE_BYTES[x.dtype], condition.shape[0]),
        reference=_numpy(lambda arrays: (_compressed(given(arrays), given(arrays, 1), axis),)),
    )  # fmt: skip
    return call.k.function(function)[0]


def _along(call: Call, x: Tensor) -> tuple[Tensor, int]:
    """The tensor and its axis; flattened where no axis is given."""
    if call.has("axis"):
        return x, axis_of(call.int("axis"), x.rank)
    return (x if x.rank == 1 else call.k.reshape(x, (x.elements,))), 0


def _compressed(x: Array, condition: Array, axis: int) -> Array:
    return np.compress(condition[: x.shape[axis]], x, axis=axis)


@op("Unique", since=11, kind="function")
def unique(call: Call) -> Sequence[Tensor]:
    x, axis = _along(call, call.x())
    if x.rank == 0:
        raise Unsupported("Unique of a scalar")
    count, is_sorted = call.found_size(0, axis), call.int("sorted", 1)
    outer, length, inner = product(x.shape[:axis]), x.shape[axis], product(x.shape[axis + 1 :])
    shape: tuple[Ix, ...] = (*x.shape[:axis], of(count), *x.shape[axis + 1 :])
    function = Function(
        name=f"smelt_unique_{x.dtype}", text=unit("functions/unique_unit.h", x.dtype), operands=(x,),
        results=((shape, x.dtype), ((of(count),), "i64"), ((length,), "i64"), ((of(count),), "i64")),
        numbers=(outer, length, inner, ix(is_sorted)), factors=(), scratch_bytes=length * 32, flops=x.elements * 8,
        reference=_numpy(lambda arrays: _distinct(given(arrays), axis, is_sorted)), found=((count, length),),
    )  # fmt: skip
    return call.k.function(function)


def _distinct(x: Array, axis: int, is_sorted: int) -> tuple[Array, ...]:
    values, first, inverse, counts = np.unique(x, True, True, True, axis)
    if not is_sorted:
        order = np.argsort(first)
        values, first, counts = np.take(values, order, axis), first[order], counts[order]
        inverse = np.argsort(order)[inverse.reshape(-1)]
    return values, *(a.reshape(-1).astype(np.int64) for a in (first, inverse, counts))
