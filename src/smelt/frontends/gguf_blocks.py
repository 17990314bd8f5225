"""Blocks of GGUF -> operands of MatMulNBits, without loss.

Input: the bytes of a tensor and the type of its blocks. Output: `Blocks`. Invariant: no number is quantized again. The
product of a half and an integer of at most 8 bits is exact in float32; only the zero points of Q4_K, a quotient, are
rounded once.

| type | block | weight | stored as |
|---|---|---|---|
| Q4_0 | 32 | d (q - 8) | 4 bits |
| Q8_0 | 32 | d q | 8 bits, q + 128 |
| Q4_K | 256, eight parts | d s q - e m | 4 bits in blocks of 32, scale d s, zero point e m / (d s) |
| Q6_K | 256, sixteen parts | d s (q - 32) | 8 bits in blocks of 16, q + 96 |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from smelt.ir.kernel.bit_fields import pack_bits

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Blocks:
    """`weights` (N, blocks, bytes), `scales` and `zeros` (N, blocks); without zeros the zero point is 2^(bits - 1)."""

    bits: int
    size: int
    weights: Array
    scales: Array
    zeros: Array | None = None


def blocks_of(kind: str, data: Array) -> Blocks:
    """`data` has a row of bytes for each column of the product."""
    return _READERS[kind](data)


def _halves(data: Array) -> Array:
    return np.ascontiguousarray(data).view(np.float16).astype(np.float32)


def _q4_0(data: Array) -> Blocks:
    each = data.reshape(len(data), -1, 18)
    return Blocks(4, 32, pack_bits(_nibbles(each[..., 2:]), 4), _halves(each[..., :2])[..., 0])


def _q8_0(data: Array) -> Blocks:
    each = data.reshape(len(data), -1, 34)
    return Blocks(8, 32, each[..., 2:] ^ np.uint8(128), _halves(each[..., :2])[..., 0])


def _q4_k(data: Array) -> Blocks:
    each = data.reshape(len(data), -1, 144)
    halves, (scales, mins) = _halves(each[..., :4]), _six_bits(each[..., 4:16])
    scale, offset = halves[..., :1] * scales, halves[..., 1:] * mins
    numbers = _nibbles(each[..., 16:].reshape(*each.shape[:2], 4, 32)).reshape(*each.shape[:2], 8, 32)
    flat = scale == 0  # a part that is one number: zero times a new scale, less it
    scale, numbers = np.where(flat, offset, scale), np.where(flat[..., None], np.uint8(0), numbers)
    with np.errstate(all="ignore"):
        zeros = np.where(scale == 0, np.float32(0), np.where(flat, np.float32(1), offset / scale))
    rows = len(data)
    packed = pack_bits(numbers, 4).reshape(rows, -1, 16)
    return Blocks(4, 32, packed, scale.reshape(rows, -1), zeros.astype(np.float32).reshape(rows, -1))


def _q6_k(data: Array) -> Blocks:
    each = data.reshape(len(data), -1, 210)
    shape = each.shape[:2]
    low = each[..., :128].reshape(*shape, 2, 1, 64) >> np.array([0, 4], np.uint8)[:, None] & 15
    high = each[..., 128:192].reshape(*shape, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    numbers = (low.reshape(*shape, 2, 4, 32) | high << np.uint8(4)) + np.uint8(96)
    scales = each[..., 192:208].view(np.int8) * _halves(each[..., 208:])
    return Blocks(8, 16, numbers.reshape(len(data), -1, 16), scales.reshape(len(data), -1))


def _nibbles(packed: Array) -> Array:
    """The low halves of some bytes, then the high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _six_bits(packed: Array) -> tuple[Array, Array]:
    """Eight scales and eight minimums of 6 bits in 12 bytes."""
    first, second, third = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=-1)
    mins = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=-1)
    return scales.astype(np.float32), mins.astype(np.float32)


_READERS: Final[Mapping[str, Callable[[Array], Blocks]]] = {
    "Q4_0": _q4_0, "Q8_0": _q8_0, "Q4_K": _q4_k, "Q6_K": _q6_k,
}  # fmt: skip
KINDS: Final = frozenset(_READERS)
