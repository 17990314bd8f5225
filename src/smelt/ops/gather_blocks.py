"""Rows of a table that a product multiplies by too, as the embedding of a language model with tied weights.

Input: a GatherBlockQuantized whose table is the reshaped weight of a MatMulNBits. Output: the chosen rows in float32,
as a function written in C (`gather_blocks_unit.h`) over the weight as the product has it. Invariant: scale * (q - zero
point), rounded once. The order of operands and numbers is that of the enums in the header.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

import numpy as np

from smelt.ir.kernel import Function, Tensor, Unsupported, ix
from smelt.ir.kernel.tensor import Arrays

from .block_quantized import ZERO_KINDS, dequantized, is_constant
from .functions import given
from .registry import Call

Array = np.ndarray[Any, Any]
NAME: Final = "smelt_gather_blocks"
UNIT: Final = "#include <smelt/nbits/gather_blocks_unit.h>\n"


class RowsNumber(IntEnum):
    """The numbers of the function."""

    COUNT = 0
    K = 1
    N = 2
    BITS = 3
    BLOCK = 4
    ZERO_KIND = 5
    WIDE = 6  # indices of 64 bits


def tied_rows(call: Call) -> Tensor | None:
    """None where the table is no reshaped constant; one with other blocks is refused."""
    indices, scales, zeros, table = call.x(1), call.x(2), call.maybe(3), call.k.unreshaped(call.x(0))
    if table is call.x(0) or not is_constant(table):
        return None
    bits, block = call.int("bits", 4), call.int("block_size", 128)
    sizes = [size.const or 0 for size in table.shape]
    if len(sizes) != 3 or sizes[2] * 8 != block * bits or [size.const for size in scales.shape] != sizes[:2]:
        raise Unsupported("a table that is stored in other blocks")
    rows, blocks, _ = sizes
    if not is_constant(scales) or (zeros is not None and not is_constant(zeros)):
        raise Unsupported("scales or zero points that are no constants: quantized weights are packed ahead of time")
    kind = ZERO_KINDS["" if zeros is None else zeros.dtype]
    numbers = (rows, bits, block, kind, int(indices.dtype == "i64"))
    function = Function(
        name=NAME,
        text=UNIT,
        operands=(indices, table, scales, zeros),
        results=(((*indices.shape, ix(blocks * block)), "f32"),),
        numbers=(indices.elements, ix(blocks * block), *(ix(number) for number in numbers)),
        factors=(),
        scratch_bytes=ix(0),
        flops=indices.elements * (blocks * block * 2),
        reference=_reference,
    )
    return call.k.function(function)[0]


def _reference(arrays: Arrays, numbers: Sequence[int], _: Sequence[float]) -> tuple[Array, ...]:
    bits, block, rows = numbers[RowsNumber.BITS], numbers[RowsNumber.BLOCK], numbers[RowsNumber.N]
    shape = (rows, numbers[RowsNumber.K] // block, block)
    table = dequantized(given(arrays, 1), given(arrays, 2), arrays[3], bits, shape)
    indices = given(arrays)
    return (table[np.where(indices < 0, indices + rows, indices)],)
