"""Discrete Fourier transforms.

Input: `aten::_fft_r2c`, `_fft_c2c`, `_fft_c2r`; complex tensors are pairs of reals along a last axis. Output: one
MatMul per transformed axis. Invariant: the transform is linear, so torch's own, applied to unit vectors in float64,
gives its matrix: direction, normalization and one-sidedness are torch's. Where the length is known only at run time,
the model computes the matrix from integers that are reduced modulo the length first, so that no angle is large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx_ir as ir
import sympy
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from smelt.export.call import Call
from smelt.export.dtypes import INT64
from smelt.export.records import Refused
from smelt.export.registry import converter
from smelt.export.sizes import Dim

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
    call: Call, value: Value, axis: int, pair_in: bool, pair_out: bool, matrix_of: Callable[[Dim], tuple[Value, Dim]]
) -> Value:
    """Transform one axis (counted without the pair's)."""
    size = call.dim(value, axis)
    if isinstance(size, int) and size > LONGEST:
        raise Refused(f"a Fourier transform of more than {LONGEST} elements")
    rank = call.rank(value) - pair_in
    others = [a for a in range(rank) if a != axis]
    order = [*others, axis, *([rank] if pair_in else [])]
    moved = value if order == sorted(order) else call.op("Transpose", value, perm=order)
    leading = [call.dim(value, a) for a in others]
    if pair_in:
        moved = call.reshape(moved, [*leading, 2 * size])
    matrix, columns = matrix_of(size)
    product = call.op("MatMul", moved, call.cast(matrix, value.dtype))
    if pair_out:
        product = call.reshape(product, [*leading, columns, 2])
    back = [order.index(a) for a in range(rank)] + ([rank] if pair_out else [])
    return product if back == sorted(back) else call.op("Transpose", product, perm=back)


def _known(
    call: Call, matrix: np.ndarray[Any, Any], dtype: ir.DataType | None, pair_out: bool = True
) -> tuple[Value, Dim]:
    return call.constant(matrix, dtype), matrix.shape[1] // (2 if pair_out else 1)


def _forward_of(
    call: Call, size: Dim, columns: Dim, normalization: int, forward: bool, pair_in: bool
) -> tuple[Value, Dim]:
    """The matrix of a length that is known at run time: cos and sin of 2 pi j k / n."""
    if call.dtype != ir.DataType.FLOAT:
        raise Refused("a Fourier transform in float64 of a length known only at run time")
    cosine, sine = _waves(call, size, columns, normalization)
    negative = call.op("Neg", sine)
    real = _paired(call, cosine, negative if forward else sine)
    if not pair_in:
        return call.reshape(real, [size, 2 * columns]), columns
    imaginary = _paired(call, sine if forward else negative, cosine)
    rows = [call.op("Unsqueeze", part, [1]) for part in (real, imaginary)]
    return call.reshape(call.op("Concat", *rows, axis=1), [2 * size, 2 * columns]), columns


def _waves(call: Call, size: Dim, columns: Dim, normalization: int) -> tuple[Value, Value]:
    n = call.scalar(size, INT64)
    rows, across = (call.op("Range", call.scalar(0, INT64), call.scalar(end, INT64), call.scalar(1, INT64))
                    for end in (size, columns))  # fmt: skip
    revolutions = call.op("Mod", call.op("Mul", call.op("Unsqueeze", rows, [1]), across), n)
    wide = call.scalar(size, ir.DataType.FLOAT)
    angle = call.op(
        "Mul",
        call.op("Div", call.cast(revolutions, ir.DataType.FLOAT), wide),
        call.scalar(2 * math.pi, ir.DataType.FLOAT),
    )
    scale = {0: None, 1: lambda: call.op("Sqrt", wide), 2: lambda: wide}[normalization]
    waves = [call.op(name, angle) for name in ("Cos", "Sin")]
    cosine, sine = waves if scale is None else [call.op("Div", wave, scale()) for wave in waves]
    return cosine, sine


def _paired(call: Call, real: Value, imaginary: Value) -> Value:
    return call.op("Concat", *(call.op("Unsqueeze", part, [2]) for part in (real, imaginary)), axis=2)


def _c2c(call: Call, value: Value, axes: Sequence[int], normalization: int, forward: bool) -> Value:
    def matrix(size: Dim) -> tuple[Value, Dim]:
        if isinstance(size, int):
            return _known(call, _matrix("c2c", size, normalization, forward), value.dtype)
        return _forward_of(call, size, size, normalization, forward, pair_in=True)

    for axis in axes:
        value = _along(call, value, axis, True, True, matrix)
    return value


@converter("aten::_fft_r2c", complex=True)
def real_to_complex(call: Call, self: Value, dim: Sequence[int], normalization: int, onesided: bool) -> Value:
    rank = call.rank(self)
    *others, last = [axis % rank for axis in dim]

    def matrix(size: Dim) -> tuple[Value, Dim]:
        if isinstance(size, int):
            return _known(call, _matrix("r2c", size, normalization, onesided), self.dtype)
        columns = sympy.floor(size / 2) + 1 if onesided else size
        return _forward_of(call, size, columns, normalization, forward=True, pair_in=False)

    half = _along(call, self, last, False, True, matrix)
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

    def matrix(size: Dim) -> tuple[Value, Dim]:
        if not isinstance(size, int):
            raise Refused("the length of a Fourier transform is not known when the model is translated")
        return _known(call, _c2r_matrix(size, normalization, last_dim_size), self.dtype, pair_out=False)

    return _along(call, half, last, True, False, matrix)


def _c2r_matrix(size: int, normalization: int, length: int) -> np.ndarray[Any, Any]:
    """Of as many inputs as there are: torch ignores those beyond half of the length."""
    used = length // 2 + 1
    matrix = _matrix("c2r", used, normalization, length)
    if size < used:
        return np.ascontiguousarray(matrix[: 2 * size])
    return np.concatenate([matrix, np.zeros((2 * (size - used), length))])
