"""8-bit products in C: a constant right matrix is packed ahead of time, another when it comes.

Input: the function that ops/integer_product.py states. Output: the same function over panels, or with the scratch
memory that panels need. Invariant: its numbers are in the order of the enum in the header.
"""

from __future__ import annotations

from dataclasses import replace

from smelt.ir.kernel import Builder, Function, ix
from smelt.ops.integer_product import COLUMNS, DEPTH, PACKED

from .int8_panels import NR, int8_panel_bytes


def int8_product(k: Builder, function: Function) -> Function:
    a, b, *parameters = function.operands
    numbers = list(function.numbers)
    packed = None if b is None else k.pack(b, "int8")
    if packed is None:
        panels = (numbers[COLUMNS] + (NR - 1)) // NR * int8_panel_bytes(numbers[DEPTH])
        return replace(function, scratch_bytes=panels)
    numbers[PACKED] = ix(1)
    return replace(function, operands=(a, packed, *parameters), numbers=tuple(numbers))
