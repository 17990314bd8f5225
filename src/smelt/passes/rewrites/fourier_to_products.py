"""DFT and STFT of known length -> a product with the Fourier matrix.

Input: DFT over an axis of known size, STFT with a constant step and window, float32. Output: MatMul, or Conv with one
input channel and the frame step as its stride. Invariant: the matrix has at most 2^22 elements, where packed products
are faster than a scalar FFT; its entries are computed in float64 and rounded once.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx_ir as ir

from smelt.passes.rewriter.rules import Rewrite, Rule
from smelt.passes.rewriter.surgery import input_at, int_attribute

Array = np.ndarray[Any, Any]
_LARGEST: Final = 1 << 22


def fourier_matrix(length: int, bins: int, *, inverse: bool = False) -> Array:
    """[length, 2, bins, 2]: what the real and imaginary part of each sample add to those of each bin."""
    revolutions = np.outer(np.arange(length), np.arange(bins)) % length / length
    angle = (2 if inverse else -2) * np.pi * revolutions
    real, imaginary = np.cos(angle), np.sin(angle)
    matrix = np.stack([np.stack([real, imaginary], -1), np.stack([-imaginary, real], -1)], 1)
    return matrix / length if inverse else matrix


# DFT


def _dft(node: ir.Node, rewrite: Rewrite) -> ir.Value | None:
    """DFT over an axis of known size -> MatMul with the Fourier matrix"""
    x = node.inputs[0]
    if x is None or x.dtype != ir.DataType.FLOAT or x.shape is None:
        return None
    rank, axis = x.shape.rank(), _dft_axis(node, rewrite)
    inverse, onesided = bool(int_attribute(node, "inverse", 0)), bool(int_attribute(node, "onesided", 0))
    if axis is None or rank < 2 or not -rank <= axis < rank - 1 or axis == -1 or (inverse and onesided):
        return None
    axis %= rank
    given, parts = x.shape[axis], x.shape[rank - 1]
    length = _length(input_at(node, 1), given, rewrite)
    if not (isinstance(given, int) and isinstance(parts, int)) or length is None or parts not in (1, 2 - onesided):
        return None
    bins = length // 2 + 1 if onesided else length
    if not 0 < 2 * parts * length * bins <= _LARGEST:
        return None
    full = np.zeros((given, 2, bins, 2))
    used = min(given, length)
    full[:used] = fourier_matrix(length, bins, inverse=inverse)[:used]
    matrix = full[:, :parts].reshape(given * parts, bins * 2).astype(np.float32)
    return _times_along(node, rewrite, x, axis, matrix, bins)


def _times_along(node: ir.Node, rewrite: Rewrite, x: ir.Value, axis: int, matrix: Array, bins: int) -> ir.Value:
    """The product over `axis` and the last axis together."""
    assert x.shape is not None
    rank = x.shape.rank()
    order = [*(a for a in range(rank) if a not in (axis, rank - 1)), axis, rank - 1]
    moved = order != list(range(rank))
    source = rewrite.op("Transpose", x, perm=order) if moved else x
    keep = [0] * (rank - 2)
    rows = rewrite.op("Reshape", source, rewrite.constant([*keep, matrix.shape[0]]))
    made = rewrite.op("MatMul", rows, rewrite.constant(matrix))
    split = rewrite.op("Reshape", made, rewrite.constant([*keep, bins, 2]))
    return rewrite.op("Transpose", split, perm=np.argsort(order).tolist(), like=node.outputs[0]) if moved else split


def _dft_axis(node: ir.Node, rewrite: Rewrite) -> int | None:
    if rewrite.opset < 20:
        return int_attribute(node, "axis", 1)
    given = input_at(node, 2)
    if given is None:
        return -2
    number = rewrite.number(given)
    return None if number is None else int(number)


def _length(value: ir.Value | None, default: Any, rewrite: Rewrite) -> int | None:
    if value is None:
        return default if isinstance(default, int) else None
    number = rewrite.number(value)
    return None if number is None else int(number)


# STFT


def _stft(node: ir.Node, rewrite: Rewrite) -> ir.Value | None:
    """STFT of a real signal with a constant window -> Conv with the frame step as its stride"""
    x, step = node.inputs[0], rewrite.number(input_at(node, 1))
    if x is None or step is None or step < 1 or x.dtype != ir.DataType.FLOAT or x.shape is None:
        return None
    if x.shape.rank() != 3 or x.shape[2] != 1:
        return None
    window = _window(node, rewrite)
    if window is None:
        return None
    length = len(window)
    bins = length // 2 + 1 if int_attribute(node, "onesided", 1) else length
    if not 0 < 2 * length * bins <= _LARGEST:
        return None
    filters = fourier_matrix(length, bins)[:, 0].reshape(length, 2 * bins) * window[:, None]
    weight = rewrite.constant(np.ascontiguousarray(filters.T[:, None, :]).astype(np.float32))
    signal = rewrite.op("Transpose", x, perm=[0, 2, 1])
    made = rewrite.op("Conv", signal, weight, strides=[int(step)], kernel_shape=[length])
    frames = rewrite.op("Transpose", made, perm=[0, 2, 1])
    return rewrite.op("Reshape", frames, rewrite.constant([0, 0, bins, 2]), like=node.outputs[0])


def _window(node: ir.Node, rewrite: Rewrite) -> Array | None:
    """The factors of a frame's samples; without a window all are 1."""
    given, length = input_at(node, 2), input_at(node, 3)
    window = rewrite.array(given, _LARGEST) if given is not None else None
    count = rewrite.number(length) if length is not None else None
    if (given is not None and window is None) or (length is not None and count is None):
        return None
    if window is None:
        return None if count is None or not 0 < count <= _LARGEST else np.ones(int(count))
    return None if window.ndim != 1 or (count is not None and count != len(window)) else window.astype(np.float64)


FOURIER_TO_PRODUCTS = (
    Rule("dft-to-matmul", _dft, frozenset(("DFT",)), ("default",)),
    Rule("stft-to-conv", _stft, frozenset(("STFT",)), ("default",)),
)
