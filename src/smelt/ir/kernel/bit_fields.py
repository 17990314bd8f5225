"""Numbers of 2, 4 or 8 bits in bytes, low bits first, as MatMulNBits stores them.

Input: arrays of uint8. Output: the numbers, or their bytes. Invariant: along the last axis; what does not fill a
byte is filled up with zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def unpack_bits(packed: Array, bits: int) -> Array:
    """Numbers from bytes."""
    if bits == 8:
        return packed
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    wide = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return wide.reshape(*packed.shape[:-1], -1)


def pack_bits(numbers: Array, bits: int) -> Array:
    """Bytes from numbers."""
    if bits == 8:
        return numbers.astype(np.uint8)
    each = 8 // bits
    filled = np.pad(numbers.astype(np.uint8), [(0, 0)] * (numbers.ndim - 1) + [(0, -numbers.shape[-1] % each)])
    parts = filled.reshape(*numbers.shape[:-1], -1, each) << np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(parts, axis=-1)


def unpack_zeros(packed: Array, bits: int, blocks: int) -> Array:
    """Zero points (N, blocks): the bytes of each row begin anew."""
    each = -(-blocks * bits // 8)
    return unpack_bits(packed.reshape(-1, each), bits)[:, :blocks]


def swapped(packed: Array) -> Array:
    """Both halves of each byte in the other order."""
    return (packed << np.uint8(4)) | (packed >> np.uint8(4))
