"""Quantized LSTMs in C: constant weights packed ahead of time.

Input: the function that ops/quantized_recurrent.py states. Output: the same function over panels. Invariant: its
numbers are in the order of the enum in the header.
"""

from __future__ import annotations

from dataclasses import replace

from smelt.ir.kernel import Builder, Function, Unsupported
from smelt.ops.quantized_recurrent import STRIDES


def int8_lstm(k: Builder, function: Function) -> Function:
    numbers, operands = list(function.numbers), list(function.operands)
    for place, stride in zip((1, 2), STRIDES, strict=True):
        weights = operands[place]
        packed = None if weights is None else k.pack(weights, "int8:stack")
        if packed is None:
            raise Unsupported("weights of a quantized LSTM that cannot be packed")
        operands[place], numbers[stride] = packed, packed.shape[1]
    return replace(function, operands=tuple(operands), numbers=tuple(numbers))
