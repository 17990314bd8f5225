"""Products of two quantized tensors, neither of them constant, as those of attention: functions in C.

Input: a MatMul of restored tensors, and what quantizes its result. Output: the function (`int8_stack_unit.h`).
Invariant: the order of operands and numbers is that of the enums in the header.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from smelt.ir.kernel import Function, Tensor, View, ix, product
from smelt.ir.kernel.tensor import Arrays

from .int8_layers import BYTES, RESULTS, Quantized, Restored

if TYPE_CHECKING:
    from .builder import CpuBuilder

Array = np.ndarray[Any, Any]
_UNIT: Final = "#include <smelt/int8/int8_stack_unit.h>\n"


@dataclass(frozen=True)
class Stack:
    """Rows of x times those of y, matrix by matrix."""

    x: Restored
    y: Restored


def stack_of(x: Restored, y: Restored) -> Stack | None:
    """None where no kernel fits: matrices of one rank, each with one scale, stacks of the same sizes."""
    if not (x.whole and y.whole) or x.scale is None or y.scale is None:
        return None
    if x.q.rank != y.q.rank or x.q.rank < 2 or x.q.shape[:-2] != y.q.shape[:-2]:
        return None
    return Stack(x, y) if x.q.shape[-1] == y.q.shape[-2] else None


def stack_result(k: CpuBuilder, stack: Stack, to: Quantized) -> Tensor | None:
    x, y = stack.x, stack.y
    if to.dtype not in BYTES:
        return None
    below = _transposed(k, y.q)
    lead, rows, depth, columns = x.q.shape[:-2], x.q.shape[-2], x.q.shape[-1], y.q.shape[-1]
    signed = [int(of.q.dtype == "i8") for of in (x, y)]
    numbers = (product(lead), rows, depth, columns, *signed, int(below is not None), RESULTS[to.dtype])
    function = Function(
        name="smelt_int8_stack",
        text=_UNIT,
        operands=(x.q, y.q if below is None else below, x.scale, x.zero, y.scale, y.zero, to.scale, to.zero),
        results=(((*lead, rows, columns), to.dtype),),
        numbers=tuple(ix(n) for n in numbers),
        factors=(),
        scratch_bytes=ix(0),
        flops=product(lead) * rows * depth * columns * 2,
        reference=reference,
    )
    return k.function(function)[0]


def _transposed(k: CpuBuilder, y: Tensor) -> Tensor | None:
    """The tensor whose last two axes are y's exchanged, if y is that one's view."""
    found = y.definition
    if isinstance(found, View) and found.regrouped and found.src is not None and found.src.shape[-2:] == y.shape[-2:]:
        below = _transposed(k, found.src)
        return None if below is None else k.reshape(below, (*y.shape[:-2], y.shape[-1], y.shape[-2]))
    if not isinstance(found, View) or found.perm is None or found.src is None:
        return None
    rank = y.rank
    return k.transpose(y, (*range(rank - 2), rank - 1, rank - 2)) if found.perm[-1] != rank - 1 else None


def reference(arrays: Arrays, numbers: Sequence[int], _: Sequence[float]) -> tuple[Array, ...]:
    """By numpy in int64."""
    x, y, x_scale, x_zero, y_scale, y_zero, scale, zero = arrays
    assert x is not None and y is not None
    right = _centred(np.swapaxes(y, -1, -2) if numbers[6] else y, y_zero)
    total = (_centred(x, x_zero) @ right) * (_number(x_scale) * _number(y_scale)) / _number(scale)
    signed = numbers[7] == RESULTS["i8"]
    whole = np.rint(total) + (0 if zero is None else float(zero.reshape(())))
    low, high = (-128, 127) if signed else (0, 255)
    return (np.clip(whole, low, high).astype(np.int8 if signed else np.uint8),)


def _centred(x: Array, zero: Array | None) -> Array:
    return x.astype(np.int64) - (0 if zero is None else zero.astype(np.int64).reshape(()))


def _number(scale: Array | None) -> float:
    return 1.0 if scale is None else float(scale.reshape(()))
