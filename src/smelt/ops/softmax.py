"""Softmax and kin. Before opset 13 the input is seen as a matrix split at `axis`; from 13 on one axis is normalized.

Input: floats. Output: the same shape and dtype. Invariant: the largest element is subtracted before any exponential.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from smelt.ir.kernel import Tensor, product
from smelt.ir.kernel import expr as E
from smelt.ops.reduction import static_axis
from smelt.ops.registry import Call, op

Array = np.ndarray[Any, Any]


def softmax_over(call: Call, x: Tensor, axes: list[int]) -> Tensor:
    k = call.k
    top = k.reduce("top", x, axes)
    powers = k.map(lambda a, m: E.op("exp", E.op("sub", a, m)), x, top)
    total = k.reduce("sum", powers, axes)
    return k.map(lambda e, t: E.op("div", e, t), powers, total)


def log_softmax_over(call: Call, x: Tensor, axes: list[int]) -> Tensor:
    k = call.k
    shifted = k.map(lambda a, m: E.op("sub", a, m), x, k.reduce("top", x, axes))
    total = k.reduce("sum", k.map(lambda s: E.op("exp", s), shifted), axes)
    return k.map(lambda s, t: E.op("sub", s, E.op("log", t)), shifted, total)


def hardmax_over(call: Call, x: Tensor, axis: int) -> Tensor:
    """One where the first largest element is, zero elsewhere."""
    k = call.k
    if not x.rank:
        return k.const(1, x.dtype)
    winner = k.reduce("argmax", x, [axis])
    one, zero = E.const(1, x.dtype), E.const(0, x.dtype)
    place = k.iota(x.shape, axis)
    return k.map(lambda p, w: E.select(E.op("eq", p, w), one, zero), place, winner)


_OVER = {"Softmax": softmax_over, "LogSoftmax": log_softmax_over}


def log_softmax_reference(x: Array, axis: int = -1) -> Array:
    """In place of onnx.reference, which takes the logarithm of a softmax that may have become zero."""
    if not x.size:
        return x
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


@op("Softmax", since=13, kind="normalization", flops=20)
@op("LogSoftmax", since=13, kind="normalization", flops=22, reference=log_softmax_reference)
def softmax(call: Call) -> Tensor:
    x = call.x()
    return _OVER[call.op](call, x, [static_axis(call.int("axis", -1), x.rank)])


@op("Hardmax", since=13, kind="normalization", steps=True)
def hardmax(call: Call) -> Tensor:
    x = call.x()
    return hardmax_over(call, x, static_axis(call.int("axis", -1), x.rank))


def matrix_axis(call: Call, rank: int) -> int:
    """Where the matrix is split: `axis` may equal the rank, then every row has one element."""
    axis = call.int("axis", 1)
    return axis if axis == rank else static_axis(axis, rank)


def _softmax_rows(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def _hardmax_rows(x: Array) -> Array:
    out = np.zeros_like(x)
    np.put_along_axis(out, x.argmax(axis=1, keepdims=True), 1, axis=1)
    return out


def _by_rows(rows: Callable[[Array], Array]) -> Callable[..., Array]:
    """The reference for opsets before 13, which onnx.reference evaluates as if they were opset 13."""

    def reference(x: Array, axis: int = 1) -> Array:
        split = axis if axis >= 0 else axis + x.ndim
        if not x.size:
            return x
        made: Array = rows(x.reshape(math.prod(x.shape[:split]), -1))
        return made.reshape(x.shape)

    return reference


@op("Softmax", before=13, kind="normalization", flops=20, reference=_by_rows(_softmax_rows))
@op("LogSoftmax", before=13, kind="normalization", flops=22, reference=_by_rows(log_softmax_reference))
def softmax_matrix(call: Call) -> Tensor:
    x = call.x()
    return _OVER[call.op](call, x, list(range(matrix_axis(call, x.rank), x.rank)))


@op("Hardmax", before=13, kind="normalization", steps=True, reference=_by_rows(_hardmax_rows))
def hardmax_matrix(call: Call) -> Tensor:
    x = call.x()
    axis = matrix_axis(call, x.rank)
    rows = call.k.reshape(x, (product(x.shape[:axis]), product(x.shape[axis:])))
    return call.k.reshape(hardmax_over(call, rows, 1), x.shape)
