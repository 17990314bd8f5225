"""Quantized LSTMs in C: constant weights packed ahead of time.

Input: the function that ops/quantized_recurrent.py states. Output: the same function over panels. Invariant: its
numbers are in the order of the enum in the header.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from smelt.ir.kernel import Builder, Function, Unsupported
from smelt.ir.kernel.tensor import Arrays
from smelt.ops.quantized_recurrent import GATES, STRIDES, reference

from .int8_panels import HEADER_BYTES, INTERLEAVE, NR

Array = np.ndarray[Any, Any]


def int8_lstm(k: Builder, function: Function) -> Function:
    numbers, operands = list(function.numbers), list(function.operands)
    for place, stride in zip((1, 2), STRIDES, strict=True):
        weights = operands[place]
        packed = None if weights is None else k.pack(weights, "int8:stack")
        if packed is None:
            raise Unsupported("weights of a quantized LSTM that cannot be packed")
        operands[place], numbers[stride] = packed, packed.shape[1]
    return replace(function, operands=tuple(operands), numbers=tuple(numbers), reference=_reference)


def _reference(arrays: Arrays, numbers: Sequence[int], factors: Sequence[float]) -> Sequence[Array]:
    x, weights, again, *others = arrays
    assert weights is not None and again is not None
    width, hidden, directions, signed = numbers[2], numbers[3], numbers[4], numbers[6:8]
    plain = [
        _unpacked(panels, directions, (depth, GATES * hidden)) + (0 if is_signed else 128)
        for panels, depth, is_signed in zip((weights, again), (width, hidden), signed, strict=True)
    ]
    return reference((x, *plain, *others), numbers, factors)


def _unpacked(panels: Array, directions: int, size: tuple[int, int]) -> Array:
    """(directions, K, N)"""
    blocks = panels[:, HEADER_BYTES:].reshape(directions, len(panels) // directions, -1, NR, INTERLEAVE)
    rows = blocks.transpose(0, 2, 4, 1, 3)
    depth, columns = rows.shape[1] * INTERLEAVE, rows.shape[3] * NR
    return rows.reshape(directions, depth, columns)[:, : size[0], : size[1]].astype(np.int64)
