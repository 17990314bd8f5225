"""Rows of a table that is quantized in blocks: GatherBlockQuantized, the embedding of a quantized language model.

Input: a constant table of 4 or 8-bit numbers, its scales and zero points, and indices. Output: the chosen rows in
float32, as a function written in C (`gather_blocks_unit.h`). Invariant: scale * (q - zero point), rounded once. The
order of operands and numbers is that of the enums in the header.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

import numpy as np

from smelt.ir.kernel import Function, Tensor, Unsupported, ix
from smelt.ir.kernel.tensor import Arrays

from .block_quantized import MICROSOFT, ZERO_KINDS, dequantized, is_constant
from .functions import given
from .registry import Call, op

Array = np.ndarray[Any, Any]
NAME: Final = "smelt_gather_blocks"
UNIT: Final = "#include <smelt/nbits/gather_blocks_unit.h>\n"
BITS: Final = (4, 8)


class RowsNumber(IntEnum):
    """The numbers of the function."""

    COUNT = 0
    K = 1
    N = 2
    BITS = 3
    BLOCK = 4
    ZERO_KIND = 5
    WIDE = 6  # indices of 64 bits


def node_reference(
    data: Array, indices: Array, scales: Array, zeros: Array | None = None, *, block_size: int, bits: int = 4,
    **axes: int,
) -> Array:  # fmt: skip
    """The node from its own operands, for the axes that are lowered."""
    if (axes.get("gather_axis", 0), axes.get("quantize_axis", 1)) not in ((0, 1), (0, -1)):
        raise NotImplementedError(f"GatherBlockQuantized along {axes}")
    return _rows(_table(data, scales, zeros, bits, block_size), indices)


def _table(data: Array, scales: Array, zeros: Array | None, bits: int, block: int) -> Array:
    return dequantized(data, scales, zeros, bits, (scales.shape[0], scales.shape[1], block))


def _rows(table: Array, indices: Array) -> Array:
    places = np.where(indices < 0, indices + len(table), indices)
    if places.size and not (places.min() >= 0 and places.max() < len(table)):
        raise IndexError("an index is out of range")
    return table[places]


def _reference(arrays: Arrays, numbers: Sequence[int], _: Sequence[float]) -> tuple[Array, ...]:
    bits, block = numbers[RowsNumber.BITS], numbers[RowsNumber.BLOCK]
    scales = given(arrays, 2).reshape(numbers[RowsNumber.N], -1)
    return (_rows(_table(given(arrays, 1), scales, arrays[3], bits, block), given(arrays)),)


@op("GatherBlockQuantized", domain=MICROSOFT, kind="function", reference=node_reference)
def gather_block_quantized(call: Call) -> Tensor:
    data, indices, scales, zeros = call.x(0), call.x(1), call.x(2), call.maybe(3)
    table = call.k.unreshaped(data)  # perhaps that of a product, with an axis of blocks
    bits, block = call.int("bits", 4), call.int("block_size", 128)
    _check(call, bits, block)
    sizes = [size.const for size in (*data.shape, *scales.shape)]
    if len(sizes) != 4 or None in sizes:
        raise Unsupported("a table, or scales, without two known axes")
    rows, width, scale_rows, blocks = (size or 0 for size in sizes)
    if not rows or rows != scale_rows or width * 8 != blocks * block * bits:
        raise Unsupported(f"{width} bytes of a row are not {blocks} blocks of {block}")
    depth = blocks * block
    if [size.const for size in table.shape] not in ([rows, width], [rows, blocks, width // blocks]):
        raise Unsupported("a table that is stored with other rows or blocks")
    numbers = (indices.elements, ix(depth), ix(rows), ix(bits), ix(block), ix(_kind(zeros, rows, blocks, bits)))
    function = Function(
        name=NAME,
        text=UNIT,
        operands=(indices, table, scales, zeros),
        results=(((*indices.shape, ix(depth)), "f32"),),
        numbers=(*numbers, ix(int(indices.dtype == "i64"))),
        factors=(),
        scratch_bytes=ix(0),
        flops=indices.elements * (depth * 2),
        reference=_reference,
    )
    return call.k.function(function)[0]


def _check(call: Call, bits: int, block: int) -> None:
    if bits not in BITS or block < 16 or block & (block - 1):
        raise Unsupported(f"a table of {bits} bits in blocks of {block}")
    if call.int("gather_axis", 0) != 0 or call.int("quantize_axis", 1) not in (1, -1):
        raise Unsupported("rows that are not chosen along the first axis, or blocks not along the last")
    for place, dtypes in ((0, ("u8",)), (1, ("i32", "i64")), (2, ("f32",))):
        if call.x(place).dtype not in dtypes:
            raise Unsupported(f"input {place} of type {call.x(place).dtype}")
    if not is_constant(call.k.unreshaped(call.x(0))) or not is_constant(call.x(2)):
        raise Unsupported("a table that is no constant: quantized weights are packed ahead of time")


def _kind(zeros: Tensor | None, rows: int, blocks: int, bits: int) -> int:
    if zeros is None:
        return ZERO_KINDS[""]
    if zeros.dtype != "u8" or zeros.elements.const != rows * -(-blocks * bits // 8) or not is_constant(zeros):
        raise Unsupported("zero points that are no constant bytes, one number for each block")
    return ZERO_KINDS["u8"]
