"""The packing record of 8-bit weights: how a matrix of a product becomes panels that `int8_tiles.h` reads.

Input: the shape or the contents of a constant matrix of int8 or uint8, and the name of a layout. Output: the shape or
the contents of its panels, one row of bytes each. Invariant: one format for every CPU level. A panel has 16 columns
(NR) and four k side by side (K-interleave): `[group of four k][column][four k]`, zero beyond K and N. In front of it
are 64 bytes with the sum of each column (int32), which an unsigned left operand's zero point needs, and 64 bytes of
numbers: whether all its pairs (k, k + 1) have |b0| + |b1| <= 128, so that a product of bytes cannot saturate, and how
many spare groups it uses. Weights of a larger pair are stored as two that add up, the second in a spare group, as
long as an eighth of the groups is enough; behind the spare groups are the numbers of the groups that they belong to.
Bytes are signed: uint8 weights are stored less 128, and so is their zero point when it is used. Scales and zero
points are operands of their own. Layers (`int8_layers.py`) have panels without spare groups, whose K are taps, each in
whole groups of four.

| layout | constant | matrices |
|---|---|---|
| int8 | (K, N) | (K, N), with spare groups |
| int8:transposed | (N, K) | (K, N), with spare groups |
| int8:dense | (K, N) | (K, N) |
| int8:dense-transposed | (N, K) | (K, N) |
| int8:stack | (G, K, M) | (G, K, M) |
| int8:taps:G | (G * M, C, *taps) | (G, taps * C, M): a tap is a pixel's channels of a group |
| int8:lines | (M, C, *taps) | (lines * line * C, M): a tap is a line of the kernel |
| int8:depthwise | (C, 1, *taps) | (fours * line * 4, C): four lines of the kernel side by side |

The columns of a depthwise convolution are blocks of 64 channels, whose vector q has channels 16 l + 4 q + i (l, i < 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from smelt.ir.kernel import Ix, ix

NR: Final = 16
INTERLEAVE: Final = 4
HEADER_BYTES: Final = 128
GROUP_BYTES: Final = NR * INTERLEAVE
SPARE_SHARE: Final = 8  # spare groups are an eighth of the groups, and one
LINE: Final = 64
MOST_OF_A_PAIR: Final = 128  # 255 * 128 fits int16
CHANNELS: Final = 64  # of a block of a depthwise convolution
_SPARE: Final = ("int8", "int8:transposed")
Array = np.ndarray[Any, Any]


def int8_panel_bytes(depth: Ix) -> Ix:
    """Of one panel with its header, its spare groups and their numbers, in whole cache lines."""
    groups = (depth + (INTERLEAVE - 1)) // INTERLEAVE
    spare = groups // SPARE_SHARE + 1
    return ((groups + spare) * GROUP_BYTES + spare * 4 + (HEADER_BYTES + LINE - 1)) // LINE * LINE


def int8_panel_shape(shape: Sequence[Ix], layout: str) -> tuple[Ix, ...] | None:
    """None where the constant does not fit the layout."""
    if layout not in _SPARE:
        return _layer_shape(shape, layout)
    if len(shape) != 2:
        return None
    depth, columns = shape[::-1] if layout == "int8:transposed" else shape
    return ((columns + (NR - 1)) // NR, int8_panel_bytes(ix(depth)))


def int8_panels(weights: Array, layout: str) -> Array:
    """The panels of a constant, as int8."""
    if layout not in _SPARE:
        return _layer_panels(_signed(weights), layout)
    signed = _signed(weights.T if layout == "int8:transposed" else weights)
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


def _signed(weights: Array) -> Array:
    return (weights ^ 128).view(np.int8) if weights.dtype == np.uint8 else weights


def _layer_shape(shape: Sequence[Ix], layout: str) -> tuple[Ix, ...] | None:
    sizes = [size.const for size in shape if size.const is not None]
    if len(sizes) != len(shape) or 0 in sizes:
        return None
    matrices = _matrices(np.broadcast_to(np.int8(0), sizes), layout)
    if matrices is None:
        return None
    groups, depth, columns = matrices.shape
    return ix(groups * -(-columns // NR)), ix(HEADER_BYTES + depth * NR)


def layer_panel_bytes(shape: Sequence[int], layout: str) -> int:
    """From one panel of a layer to the next."""
    found = _layer_shape([ix(size) for size in shape], layout)
    assert found is not None and found[1].const is not None
    return found[1].const


def _matrices(weights: Array, layout: str) -> Array | None:
    """(groups, K, N), K in whole groups of four for each tap; None where the constant does not fit."""
    _, arrangement, *groups = layout.split(":")
    if arrangement == "stack":
        return _by_fours(weights[:, None]) if weights.ndim == 3 else None
    if arrangement.startswith("dense"):
        if weights.ndim != 2:
            return None
        matrix = weights.T if arrangement == "dense-transposed" else weights
        return _by_fours(matrix[None, None])
    if weights.ndim not in (3, 4):
        return None
    filters = weights[:, :, None] if weights.ndim == 3 else weights
    rows, channels, height, width = filters.shape
    if arrangement == "depthwise":
        return _depthwise_matrix(filters[:, 0])[None] if channels == 1 else None
    if arrangement == "lines":
        return _by_fours(filters.transpose(2, 3, 1, 0).reshape(1, height, width * channels, rows))
    many = int(groups[0])
    split = filters.reshape(many, rows // many, channels, height * width)
    return _by_fours(split.transpose(0, 3, 2, 1))


def _by_fours(taps: Array) -> Array:
    """(groups, taps, K, N) -> (groups, taps * K, N), K of each tap filled up."""
    groups, count, depth, columns = taps.shape
    missing = -depth % INTERLEAVE
    filled = np.pad(taps, ((0, 0), (0, 0), (0, missing), (0, 0))) if missing else taps
    return filled.reshape(groups, count * (depth + missing), columns)


def _depthwise_matrix(filters: Array) -> Array:
    """(C, KH, KW) -> (K, blocks * 64), the channels in the order of the vectors."""
    channels, height, width = filters.shape
    filled = np.pad(filters, ((0, -channels % CHANNELS), (0, -height % INTERLEAVE), (0, 0)))
    fours = filled.reshape(-1, filled.shape[1] // INTERLEAVE, INTERLEAVE, width)
    matrix = fours.transpose(1, 3, 2, 0).reshape(-1, len(filled))
    return matrix[:, depthwise_order(len(filled))]


def depthwise_order(channels: int) -> Array:
    """The channel of each column of whole blocks."""
    block = np.arange(CHANNELS).reshape(4, 4, 4).transpose(1, 0, 2).reshape(-1)
    return (np.arange(0, channels, CHANNELS)[:, None] + block).reshape(-1)


def _layer_panels(weights: Array, layout: str) -> Array:
    matrices = _matrices(weights, layout)
    assert matrices is not None, f"{layout} does not fit {weights.shape}"
    groups, depth, columns = matrices.shape
    panels = -(-columns // NR)
    filled = np.pad(matrices, ((0, 0), (0, 0), (0, panels * NR - columns)))
    blocks = filled.reshape(groups, depth // INTERLEAVE, INTERLEAVE, panels, NR).transpose(0, 3, 1, 4, 2)
    out = np.zeros((groups * panels, HEADER_BYTES + depth * NR), np.int8)
    out[:, HEADER_BYTES:] = blocks.reshape(groups * panels, -1)
    header = out[:, :HEADER_BYTES].view(np.int32)
    header[:, :NR] = filled.sum(1, dtype=np.int32).reshape(groups * panels, NR)
    pairs = np.abs(out[:, HEADER_BYTES:].astype(np.int16)).reshape(groups * panels, -1, 2).sum(-1)
    header[:, NR] = (pairs <= MOST_OF_A_PAIR).all(-1)
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
