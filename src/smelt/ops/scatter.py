"""Updates written into a copy of a tensor: ScatterElements, ScatterND, Scatter.

Input: data, indices that come at run time, updates. Output: a function in C (`scatter_unit.h`). Invariant: an index out
of range fails the call before anything is written; updates of one element are applied in the order of the indices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from smelt.ir.kernel import Function, Ix, Tensor, Unsupported, fn, ix, product
from smelt.ir.kernel.tensor import Arrays
from smelt.ops.axes import axis_of
from smelt.ops.functions import given, unit

from .registry import Call, op

Array = np.ndarray[Any, Any]
_REDUCTIONS = ("none", "add", "mul", "min", "max")


@op("ScatterElements", since=11, kind="function", cost="move")
@op("Scatter", since=9, before=11, kind="function")
def scatter_elements(call: Call) -> Tensor:
    x, indices, updates, reduction = _operands(call, elements_since=16)
    axis = axis_of(call.int("axis", 0), x.rank)
    if not x.rank == indices.rank == updates.rank:
        raise Unsupported("data, indices and updates differ in rank")
    for d, (requested, have, size) in enumerate(zip(indices.shape, updates.shape, x.shape, strict=True)):
        call.k.require_equal(requested, have, "indices and updates must agree in shape")
        if d != axis:
            call.k.require_equal(fn("lt", size, requested), 0, "indices reach beyond the data")
    numbers = (ix(x.rank), ix(axis), *x.shape, *indices.shape)
    return _function(
        call, "elements", reduction, (x, indices, updates), numbers, ix(0),
        lambda x, indices, updates: _elements(axis, reduction, x, indices, updates),
    )  # fmt: skip


@op("ScatterND", since=11, kind="function", cost="move")
def scatter_nd(call: Call) -> Tensor:
    x, indices, updates, reduction = _operands(call, elements_since=16)
    length = indices.shape[-1].const if indices.rank else None
    if length is None or not 1 <= length <= x.rank:
        raise Unsupported("the length of an index is unknown or does not fit the data's rank")
    shape = (*indices.shape[:-1], *x.shape[length:])
    if len(shape) != updates.rank:
        raise Unsupported("updates of another rank than indices and data say")
    for have, requested in zip(updates.shape, shape, strict=True):
        call.k.require_equal(have, requested, "updates must have one slice per index")
    tuples, slices = product(indices.shape[:-1]), product(x.shape[length:])
    numbers = (tuples, ix(length), slices, x.elements, *x.shape[:length])
    return _function(
        call, "slices", reduction, (x, indices, updates), numbers, tuples * 8,
        lambda x, indices, updates: _slices(reduction, x, indices, updates),
    )  # fmt: skip


def _operands(call: Call, *, elements_since: int) -> tuple[Tensor, Tensor, Tensor, str]:
    x, indices, updates = call.x(0), call.x(1), call.x(2)
    reduction = call.str("reduction", "none") if call.opset >= elements_since else "none"
    if indices.dtype not in ("i32", "i64") or updates.dtype != x.dtype or x.rank == 0:
        raise Unsupported("indices that are no integers, updates of another type, or a scalar")
    if reduction not in _REDUCTIONS or (reduction != "none" and x.dtype == "b"):
        raise Unsupported(f"reduction {reduction!r} of {x.dtype}")
    return x, call.k.cast(indices, "i64"), updates, reduction


def _function(
    call: Call, form: str, reduction: str, operands: tuple[Tensor, Tensor, Tensor], numbers: tuple[Ix, ...],
    scratch_bytes: Ix, reference: Callable[[Array, Array, Array], Array],
) -> Tensor:  # fmt: skip
    x = operands[0]
    stem = f"smelt_scatter_{reduction}"
    text = unit(
        "functions/scatter_unit.h", x.dtype, SMELT_REDUCTION=_REDUCTIONS.index(reduction),
        SMELT_SCATTER_ELEMENTS=f"{stem}_elements_", SMELT_SCATTER_SLICES=f"{stem}_slices_",
    )  # fmt: skip

    def results(arrays: Arrays, numbers: Sequence[int], factors: Sequence[float]) -> tuple[Array]:
        del numbers, factors
        return (reference(given(arrays, 0), given(arrays, 1), given(arrays, 2)),)

    return call.k.function(
        Function(
            name=f"{stem}_{form}_{x.dtype}", text=text, operands=operands, results=((x.shape, x.dtype),),
            numbers=numbers, factors=(), scratch_bytes=scratch_bytes, flops=operands[2].elements, reference=results,
        )
    )[0]  # fmt: skip


def _elements(axis: int, reduction: str, x: Array, indices: Array, updates: Array) -> Array:
    out = x.copy()
    places: list[Array] = list(np.ix_(*(np.arange(size) for size in indices.shape)))
    places[axis] = np.where(indices < 0, indices + x.shape[axis], indices)
    _update(out, tuple(places), updates, reduction)
    return out


def _slices(reduction: str, x: Array, indices: Array, updates: Array) -> Array:
    out = x.copy()
    _update(out, tuple(np.moveaxis(indices, -1, 0)), updates, reduction)
    return out


def _update(out: Array, places: tuple[Array, ...], updates: Array, reduction: str) -> None:
    if reduction == "none":
        out[places] = updates
        return
    rules = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
    with np.errstate(all="ignore"):
        rules[reduction].at(out, places, updates)
