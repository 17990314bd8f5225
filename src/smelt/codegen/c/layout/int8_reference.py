"""What 8-bit layers compute, by numpy in int64.

Input: the operands, numbers and factors of a function of `int8_layers.py`. Output: its result. Invariant: sums are
exact; quantization rounds half to even.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from smelt.ir.kernel.tensor import Arrays

from .int8_panels import HEADER_BYTES, INTERLEAVE, NR, depthwise_order

Array = np.ndarray[Any, Any]
_FLOAT, _UINT8, _INT8 = 1, 2, 3


def reference(arrays: Arrays, numbers: Sequence[int], factors: Sequence[float]) -> tuple[Array, ...]:
    x, panels, x_scale, x_zero, w_scale, w_zero, bias, bias_scale, y_scale, y_zero, *behind = arrays
    added, (shift, second_scale, second_zero, table) = behind[:5], behind[5:9]
    assert x is not None and panels is not None
    sums = _sums(_centred(x, x_zero), panels, w_zero, numbers)
    shape = (*x.shape[:-1], sums.shape[-1]) if x.ndim != 4 else sums.shape
    if numbers[20] == 0:
        return (sums.reshape(shape).astype(np.int32),)
    result = sums * (_number(x_scale) * _number(w_scale))
    if bias is not None:
        scale = _number(bias_scale) if numbers[24] else _number(x_scale) * _number(w_scale)
        result = result + bias.reshape(-1) * scale
    result = np.clip(result, factors[0], factors[1]).reshape(shape)
    if numbers[20] == _FLOAT:
        return (result.astype(np.float32),)
    signed = numbers[20] == _INT8
    quantized = _quantized(result, y_scale, y_zero, signed)
    if shift is not None:
        restored = _centred(quantized, y_zero) * _number(y_scale)
        quantized, y_scale, y_zero = (
            _quantized(restored + shift.reshape(-1), second_scale, second_zero, signed),
            second_scale,
            second_zero,
        )
    residual, r_scale, r_zero, z_scale, z_zero = added
    if residual is not None:
        own = _centred(quantized, y_zero) * _number(y_scale)
        total = own + _centred(residual, r_zero).reshape(shape) * _number(r_scale)
        quantized = _quantized(np.clip(total, factors[2], factors[3]), z_scale, z_zero, signed)
    if table is not None:
        quantized = table.reshape(-1)[quantized.view(np.uint8)].view(quantized.dtype)
    return (quantized,)


def _sums(x: Array, panels: Array, w_zero: Array | None, numbers: Sequence[int]) -> Array:
    batch, height, width, channels, high, wide, columns, groups, kh, kw, sh, sw, dh, dw, top, left = numbers[:16]
    image = _image(x, numbers)
    weights = _weights(panels, numbers) - _zeros(w_zero)
    bottom, right = (high - 1) * sh + (kh - 1) * dh + 1, (wide - 1) * sw + (kw - 1) * dw + 1
    padded = np.zeros((batch, max(bottom, top + height), max(right, left + width), channels), np.int64)
    padded[:, top : top + height, left : left + width] = image
    out = np.zeros((batch, high, wide, weights.shape[-1]), np.int64)
    for i in range(kh):
        for j in range(kw):
            seen = padded[:, i * dh : i * dh + (high - 1) * sh + 1 : sh, j * dw : j * dw + (wide - 1) * sw + 1 : sw]
            if weights.shape[2] == 1 and channels == columns > 1:
                out += seen * weights[i, j, 0]
                continue
            split = seen.reshape(batch, high, wide, groups, channels // groups)
            kernel = weights[i, j].reshape(channels // groups, groups, columns)
            out += np.einsum("bhwgc,cgm->bhwgm", split, kernel).reshape(out.shape)
    return out


def _image(x: Array, numbers: Sequence[int]) -> Array:
    batch, height, width, channels = numbers[:4]
    if numbers[26]:
        return x.reshape(batch, channels, height, width).transpose(0, 2, 3, 1)
    return x.reshape(batch, height, width, channels)


def _weights(panels: Array, numbers: Sequence[int]) -> Array:
    """(KH, KW, channels of a group, columns of all groups) as they were before they were packed."""
    channels, columns, groups, kh, kw, lines, signed = *(numbers[i] for i in (3, 6, 7, 8, 9, 16)), numbers[18]
    blocks = panels[:, HEADER_BYTES:].reshape(groups, len(panels) // groups, -1, NR, INTERLEAVE)
    matrices = blocks.transpose(0, 2, 4, 1, 3).reshape(groups, -1, len(panels) // groups * NR).astype(np.int64)
    offset = 0 if signed else 128
    fours = -(-kh // INTERLEAVE)
    if matrices.shape[1] == fours * INTERLEAVE * kw and channels == columns > 1 and matrices.shape[2] % 64 == 0:
        plain = np.empty_like(matrices[0])
        plain[:, depthwise_order(plain.shape[1])] = matrices[0]
        taps = plain.reshape(fours, kw, INTERLEAVE, -1).transpose(0, 2, 1, 3).reshape(fours * INTERLEAVE, kw, -1)
        return taps[:kh, :, None, :columns] + offset
    if lines:
        tap = matrices[0].reshape(kh, -1, matrices.shape[2])[:, : kw * channels, :columns]
        return tap.reshape(kh, kw, channels, columns) + offset
    each = channels // groups
    taps = matrices.reshape(groups, kh * kw, -1, matrices.shape[2])[:, :, :each, :columns]
    return taps.transpose(1, 2, 0, 3).reshape(kh, kw, each, groups * columns) + offset


def _zeros(zero: Array | None) -> Array:
    return np.zeros((), np.int64) if zero is None else zero.astype(np.int64).reshape(-1)


def _centred(x: Array, zero: Array | None) -> Array:
    return x.astype(np.int64) - (0 if zero is None else zero.astype(np.int64).reshape(()))


def _number(scale: Array | None) -> Array:
    return np.ones(1) if scale is None else scale.astype(np.float64).reshape(-1)


def _quantized(x: Array, scale: Array | None, zero: Array | None, signed: bool) -> Array:
    whole = np.rint(x / _number(scale)) + (0 if zero is None else float(zero.reshape(())))
    low, high = (-128, 127) if signed else (0, 255)
    return np.clip(whole, low, high).astype(np.int8 if signed else np.uint8)
