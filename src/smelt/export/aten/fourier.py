"""Discrete Fourier transforms.

Input: `aten::_fft_r2c`, `_fft_c2c`, `_fft_c2r`; complex tensors are pairs of reals along a last axis. Output: one
MatMul per transformed axis. Invariant: the transform is linear, so torch's own, applied to unit vectors in float64,
gives its matrix: direction, normalization and one-sidedness are torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from smelt.export.call import Call
from smelt.export.records import Refused
from smelt.export.registry import converter

Value = ir.Value
LONGEST = 2048
_ATEN: Any = torch.ops.aten


@lru_cache(maxsize=64)
def _matrix(kind: str, size: int, normalization: int, option: Any) -> np.ndarray[Any, Any]:
    """[inputs, outputs]: real and imaginary parts of one element are neighbours."""
    with unset_fake_temporarily():
        unit = torch.eye(size, dtype=torch.float64)
        if kind == "r2c":
            result = torch.view_as_real(_ATEN._fft_r2c(unit, [1], normalization, option))
        else:
            pairs = torch.stack([unit + 0j, unit * 1j], dim=1).reshape(2 * size, size)
            if kind == "c2c":
                result = torch.view_as_real(_ATEN._fft_c2c(pairs, [1], normalization, option))
            else:
                result = _ATEN._fft_c2r(pairs, [1], normalization, option)
        return result.reshape(len(result), -1).numpy()


def _along(
    call: Call, value: Value, axis: int, pair_in: bool, pair_out: bool, matrix_of: Callable[[int], Any]
) -> Value:
    """Transform one axis (counted without the pair's)."""
    size = call.dim(value, axis)
    if not isinstance(size, int):
        raise Refused("the length of a Fourier transform is not known when the model is translated")
    if size > LONGEST:
        raise Refused(f"a Fourier transform of more than {LONGEST} elements")
    rank = call.rank(value) - pair_in
    others = [a for a in range(rank) if a != axis]
    order = [*others, axis, *([rank] if pair_in else [])]
    moved = value if order == sorted(order) else call.op("Transpose", value, perm=order)
    leading = [call.dim(value, a) for a in others]
    if pair_in:
        moved = call.reshape(moved, [*leading, 2 * size])
    matrix = matrix_of(size)
    product = call.op("MatMul", moved, call.constant(matrix, value.dtype))
    if pair_out:
        product = call.reshape(product, [*leading, matrix.shape[1] // 2, 2])
    back = [order.index(a) for a in range(rank)] + ([rank] if pair_out else [])
    return product if back == sorted(back) else call.op("Transpose", product, perm=back)


def _c2c(call: Call, value: Value, axes: Sequence[int], normalization: int, forward: bool) -> Value:
    for axis in axes:
        value = _along(call, value, axis, True, True, lambda size: _matrix("c2c", size, normalization, forward))
    return value


@converter("aten::_fft_r2c", complex=True)
def real_to_complex(call: Call, self: Value, dim: Sequence[int], normalization: int, onesided: bool) -> Value:
    rank = call.rank(self)
    *others, last = [axis % rank for axis in dim]
    half = _along(call, self, last, False, True, lambda size: _matrix("r2c", size, normalization, onesided))
    return _c2c(call, half, others, normalization, forward=True)


@converter("aten::_fft_c2c", complex=True)
def complex_to_complex(call: Call, self: Value, dim: Sequence[int], normalization: int, forward: bool) -> Value:
    rank = call.rank(self) - 1
    return _c2c(call, self, [axis % rank for axis in dim], normalization, forward)


@converter("aten::_fft_c2r", complex=True)
def complex_to_real(call: Call, self: Value, dim: Sequence[int], normalization: int, last_dim_size: Any) -> Value:
    if not isinstance(last_dim_size, int):
        raise Refused("the length of a Fourier transform is not known when the model is translated")
    rank = call.rank(self) - 1
    *others, last = [axis % rank for axis in dim]
    half = _c2c(call, self, others, normalization, forward=False)
    return _along(call, half, last, True, False, lambda size: _c2r_matrix(size, normalization, last_dim_size))


def _c2r_matrix(size: int, normalization: int, length: int) -> np.ndarray[Any, Any]:
    """Of as many inputs as there are: torch ignores those beyond half of the length."""
    used = length // 2 + 1
    matrix = _matrix("c2r", used, normalization, length)
    if size < used:
        return np.ascontiguousarray(matrix[: 2 * size])
    return np.concatenate([matrix, np.zeros((2 * (size - used), length))])
