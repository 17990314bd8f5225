"""The packing record of 8-bit weights: how a matrix of a product becomes panels that `int8_tiles.h` reads.

Input: the shape or the contents of a constant matrix of int8 or uint8, and the name of a layout. Output: the shape or
the contents of its panels, one row of bytes each. Invariant: one format for every CPU level. A panel has 16 columns
(NR) and four k side by side (K-interleave): `[group of four k][column][four k]`, zero beyond K and N. In front of it
are 64 bytes with the sum of each column (int32), which an unsigned left operand's zero point needs, and 64 bytes of
numbers: whether all its pairs (k, k + 1) have |b0| + |b1| <= 128, so that a product of bytes cannot saturate, and how
many spare groups it uses. Weights of a larger pair are stored as two that add up, the second in a spare group, as
long as an eighth of the groups is enough; behind the spare groups are the numbers of the groups that they belong to.
Bytes are signed: uint8 weights are stored less 128, and so is their zero point when it is used. Scales and zero
points are operands of their own.

| layout | constant | matrix |
|---|---|---|
| int8 | (K, N) | (K, N) |
| int8:transposed | (N, K) | (K, N) |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from .index import Ix, ix

NR: Final = 16
INTERLEAVE: Final = 4
HEADER_BYTES: Final = 128
GROUP_BYTES: Final = NR * INTERLEAVE
SPARE_SHARE: Final = 8  # spare groups are an eighth of the groups, and one
LINE: Final = 64
MOST_OF_A_PAIR: Final = 128  # 255 * 128 fits int16
_LAYOUTS: Final = ("int8", "int8:transposed")
Array = np.ndarray[Any, Any]


def is_int8(layout: str) -> bool:
    return layout in _LAYOUTS


def packed_dtype(layout: str) -> str:
    """The type of the panels of a layout, of this module or of `panels.py`."""
    return "i8" if is_int8(layout) else "f32"


def int8_panel_bytes(depth: Ix) -> Ix:
    """Of one panel with its header, its spare groups and their numbers, in whole cache lines."""
    groups = (depth + (INTERLEAVE - 1)) // INTERLEAVE
    spare = groups // SPARE_SHARE + 1
    return ((groups + spare) * GROUP_BYTES + spare * 4 + (HEADER_BYTES + LINE - 1)) // LINE * LINE


def int8_panel_shape(shape: Sequence[Ix], layout: str) -> tuple[Ix, ...] | None:
    """None where the constant is no matrix."""
    if len(shape) != 2:
        return None
    depth, columns = shape[::-1] if layout == "int8:transposed" else shape
    return ((columns + (NR - 1)) // NR, int8_panel_bytes(ix(depth)))


def int8_panels(weights: Array, layout: str) -> Array:
    """The panels of a constant, as int8."""
    matrix = weights.T if layout == "int8:transposed" else weights
    signed = (matrix ^ 128).view(np.int8) if matrix.dtype == np.uint8 else matrix
    depth, columns = signed.shape
    panels, groups = -(-columns // NR), -(-depth // INTERLEAVE)
    filled = np.zeros((groups * INTERLEAVE, panels * NR), np.int8)
    filled[:depth, :columns] = signed
    stride = int8_panel_bytes(ix(depth)).const
    assert stride is not None
    out = np.zeros((panels, stride), np.int8)
    blocks = filled.reshape(groups, INTERLEAVE, panels, NR).transpose(2, 0, 3, 1).reshape(panels, groups, GROUP_BYTES)
    out[:, HEADER_BYTES : HEADER_BYTES + groups * GROUP_BYTES] = blocks.reshape(panels, -1)
    header = out[:, :HEADER_BYTES].view(np.int32)
    header[:, :NR] = filled.sum(0, dtype=np.int32).reshape(panels, NR)
    for panel, block in enumerate(blocks):
        header[panel, NR : NR + 2] = _split(block, out[panel, HEADER_BYTES:])
    return out


def _split(block: Array, out: Array) -> tuple[bool, int]:
    """Put halves of the weights of large pairs into spare groups; whether all pairs are small then, and the groups."""
    groups, spare = len(block), len(block) // SPARE_SHARE + 1
    large = np.abs(block.astype(np.int16)).reshape(groups, GROUP_BYTES // 2, 2).sum(-1) > MOST_OF_A_PAIR
    places = np.flatnonzero(large.any(-1))
    if len(places) > spare:
        return False, 0
    halves = np.where(np.repeat(large[places], 2, axis=-1), block[places] >> 1, 0).astype(np.int8)
    out[: groups * GROUP_BYTES].reshape(groups, GROUP_BYTES)[places] -= halves
    spares = out[groups * GROUP_BYTES : (groups + spare) * GROUP_BYTES].reshape(spare, GROUP_BYTES)
    spares[: len(places)] = halves
    numbers = out[(groups + spare) * GROUP_BYTES :][: spare * 4].view(np.int32)
    numbers[: len(places)] = places
    return True, len(places)


def int8_matrix(panels: Array, depth: int, columns: int, signed: bool) -> Array:
    """The matrix (K, N) that was packed, of its own type."""
    groups = -(-depth // INTERLEAVE)
    spare = groups // SPARE_SHARE + 1
    bytes_of = panels[:, HEADER_BYTES:]
    blocks = bytes_of[:, : groups * GROUP_BYTES].reshape(-1, groups, GROUP_BYTES).astype(np.int8)
    for panel, count in enumerate(panels[:, :HEADER_BYTES].copy().view(np.int32)[:, NR + 1]):
        added = bytes_of[panel, groups * GROUP_BYTES :][: count * GROUP_BYTES].reshape(count, GROUP_BYTES)
        numbers = bytes_of[panel, (groups + spare) * GROUP_BYTES :][: count * 4].copy().view(np.int32)
        blocks[panel, numbers] += added
    rows = blocks.reshape(-1, groups, NR, INTERLEAVE).transpose(1, 3, 0, 2).reshape(groups * INTERLEAVE, -1)
    matrix = np.ascontiguousarray(rows[:depth, :columns])
    return matrix if signed else matrix.view(np.uint8) ^ 128
