"""The packing record of block-quantized weights: how MatMulNBits' operands become panels that `nbits.h` reads.

Input: constants in the layout of MatMulNBits and the name of a layout. Output: their panels of 16 columns. Invariant:
one format for every CPU level, for float32 and for 8-bit activations. Columns beyond N have scales of 0.

| layout | constant | packed |
|---|---|---|
| nbits:BITS | B, uint8 (N, blocks, block * BITS / 8), low bits first | uint8 (panels, blocks, block * BITS / 32, 64) |
| nbits_swapped:BLOCKS:BLOCK | B of MatMulBnb4, uint8 (N * BLOCKS * BLOCK / 2), high bits first | as nbits:4 |
| nbits_floats:BLOCKS | scales or float zero points, (N, BLOCKS) or flat | float32 (panels, BLOCKS, 16) |
| nbits_halves:BLOCKS | scales that float16 holds exactly | float16 (panels, BLOCKS, 16) |
| nbits_zeros:BITS:BLOCKS | zero points, uint8 (N, ceil(BLOCKS * BITS / 8)) or flat | uint8 (panels, BLOCKS, 16) |

A line of 64 bytes has a 32-bit word for each column with 32 / BITS consecutive k; the one at 4 t + j has its bits at
8 j + BITS * t. So the bytes of one t are four k side by side, as products of bytes want them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from smelt.ir.kernel import Ix, ix
from smelt.ir.kernel.bit_fields import swapped, unpack_bits, unpack_zeros

NR: Final = 16
LINE: Final = 64
BITS: Final = (2, 4, 8)
WEIGHTS: Final = "nbits"
SWAPPED: Final = "nbits_swapped"
FLOATS: Final = "nbits_floats"
HALVES: Final = "nbits_halves"
ZEROS: Final = "nbits_zeros"
_DTYPES: Final = {WEIGHTS: "u8", SWAPPED: "u8", FLOATS: "f32", HALVES: "f16", ZEROS: "u8"}
_SCALES: Final = {FLOATS: np.float32, HALVES: np.float16}
Array = np.ndarray[Any, Any]


def is_nbits(layout: str) -> bool:
    return layout.partition(":")[0] in _DTYPES


def nbits_dtype(layout: str) -> str:
    return _DTYPES[layout.partition(":")[0]]


def are_halves(plain: Array) -> bool:
    """Whether float16 holds all numbers exactly."""
    with np.errstate(over="ignore"):
        return bool((plain.astype(np.float16).astype(np.float32) == plain).all())


def nbits_shape(shape: Sequence[Ix], layout: str) -> tuple[Ix, ...] | None:
    """The shape of the panels; None where the constant does not fit the layout."""
    sizes = [size.const for size in shape]
    known = [size for size in sizes if size is not None]
    if len(known) != len(sizes):
        return None
    kind, *numbers = layout.split(":")
    if kind == WEIGHTS:
        return _weights_shape(known, int(numbers[0]))
    if kind == SWAPPED:
        blocks, size = int(numbers[0]), int(numbers[1]) // 2
        return _weights_shape([prod(known) // (blocks * size), blocks, size], 4)
    blocks = int(numbers[-1])
    each = blocks if kind in _SCALES else -(-blocks * int(numbers[0]) // 8)
    elements = prod(known)
    if not each or elements % each or len(known) > 2:
        return None
    return ix(-(-(elements // each) // NR)), ix(blocks), ix(NR)


def _weights_shape(sizes: Sequence[int], bits: int) -> tuple[Ix, ...] | None:
    if len(sizes) != 3 or bits not in BITS or sizes[2] * NR % LINE:
        return None
    return ix(-(-sizes[0] // NR)), ix(sizes[1]), ix(sizes[2] * NR // LINE), ix(LINE)


def nbits_panels(plain: Array, layout: str) -> Array:
    """The panels of a constant."""
    kind, *numbers = layout.split(":")
    if kind == WEIGHTS:
        return _packed_weights(plain, int(numbers[0]))
    if kind == SWAPPED:
        return _packed_weights(swapped(plain).reshape(-1, int(numbers[0]), int(numbers[1]) // 2), 4)
    blocks = int(numbers[-1])
    if kind in _SCALES:
        values = plain.astype(_SCALES[kind], copy=False).reshape(-1, blocks)
    else:
        values = unpack_zeros(plain, int(numbers[0]), blocks)
    columns = np.zeros((-(-len(values) // NR) * NR, blocks), values.dtype)
    columns[: len(values)] = values
    return np.ascontiguousarray(columns.reshape(-1, NR, blocks).transpose(0, 2, 1))


def _packed_weights(plain: Array, bits: int) -> Array:
    columns, blocks, size = plain.shape
    panels, words = -(-columns // NR), 32 // bits
    lines = size * NR // LINE
    out = np.zeros((panels, blocks, lines, LINE), np.uint8)
    for panel in range(panels):  # one at a time: unpacked weights take many times their bytes
        part = plain[panel * NR : (panel + 1) * NR]
        numbers = np.zeros((NR, blocks, lines, words // 4, 4), np.uint8)
        numbers[: len(part)] = unpack_bits(part, bits).reshape(len(part), blocks, lines, words // 4, 4)
        shifts = (np.arange(words // 4, dtype=np.uint8) * bits)[:, None]
        lanes = np.bitwise_or.reduce(numbers << shifts, axis=3)
        out[panel] = lanes.transpose(1, 2, 0, 3).reshape(blocks, lines, LINE)
    return out
