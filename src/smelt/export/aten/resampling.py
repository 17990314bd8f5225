"""Resampling along axes as products with constant matrices: antialiased interpolation, adaptive averages, gradients.

Input: calls whose sizes are known. Output: one MatMul per spatial axis, or one Resize. Invariant: torch's own kernel,
applied to the columns of a unit matrix, gives the matrix; so edges, alignment and scales are torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from smelt.export.call import Call
from smelt.export.dtypes import is_float
from smelt.export.records import Refused
from smelt.export.registry import converter

Value = ir.Value
Matrix = np.ndarray[Any, Any]
LARGEST = 4096


def static_sizes(sizes: Sequence[Any]) -> list[int]:
    if not all(isinstance(size, int) for size in sizes):
        raise Refused("resampling between sizes that are not known when the model is translated")
    if any(size > LARGEST for size in sizes):
        raise Refused(f"resampling by a matrix wider than {LARGEST}")
    return [int(size) for size in sizes]


def applied(call: Call, value: Value, matrices: Sequence[Matrix], backward: bool) -> Value:
    """Each matrix [out, in] along its spatial axis; transposed for the gradient."""
    if not is_float(value.dtype):
        raise Refused("fractions of whole numbers")
    first = call.rank(value) - len(matrices)
    for offset, matrix in enumerate(matrices):
        rows, columns = matrix.shape
        if rows != columns or not np.array_equal(matrix, np.eye(rows)):
            value = _along(call, value, matrix.T if backward else matrix, first + offset)
    return value


def _along(call: Call, value: Value, matrix: Matrix, axis: int) -> Value:
    rank = call.rank(value)
    if axis == rank - 2:
        return call.op("MatMul", call.constant(matrix, value.dtype), value)
    factor = call.constant(np.ascontiguousarray(matrix.T), value.dtype)
    if axis == rank - 1:
        return call.op("MatMul", value, factor)
    order = [*(a for a in range(rank) if a != axis), axis]
    transposed = call.op("MatMul", call.op("Transpose", value, perm=order), factor)
    return call.op("Transpose", transposed, perm=[order.index(a) for a in range(rank)])


def unit_response(kernel: Callable[[torch.Tensor], torch.Tensor], size: int) -> Matrix:
    """[out, in] of a linear map along the last axis but of [1, channels, size, ...ones]."""
    with unset_fake_temporarily():
        return kernel(torch.eye(size, dtype=torch.float64)).reshape(size, -1).T.numpy()


def _upsampler(name: str, spatial: int, aligned: bool | None, scales: Sequence[float | None]) -> Any:
    """A function (axis, size, out) -> matrix."""
    kernel = getattr(torch.ops.aten, name).default

    def of(axis: int, size: int, out: int) -> Matrix:
        # Along one axis. The others have two elements and stay: with one, torch's antialiasing kernel goes astray.
        others = [2] * (spatial - 1)
        scale = scales[axis] if axis < len(scales) else None
        given = [scale, *([None] * (spatial - 1))]
        options = given if aligned is None else [aligned, *given]

        def response(unit: torch.Tensor) -> torch.Tensor:
            wide = unit.reshape(1, size, size, *([1] * len(others))).expand(1, size, size, *others).contiguous()
            return kernel(wide, [out, *others], *options)[(..., *([0] * len(others)))]

        return unit_response(response, size)

    return of


_ALIGNED = ("upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d")
_SMOOTH = (*_ALIGNED, "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
_NEAREST = tuple(f"{kind}{d}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for d in (1, 2, 3))


def _scales(call: Call, spatial: int) -> list[Any]:
    if spatial == 1:
        return [call.arguments.get("scales")]
    return [call.arguments.get(f"scales_{axis}") for axis in ("d", "h", "w")[-spatial:]]


def _resampled(name: str, backward: bool) -> Callable[[Call], Value]:
    spatial = int(name.removesuffix("_aa")[-2])

    def convert(call: Call) -> Value:
        value = call.arguments["grad_output" if backward else "self"]
        inner = call.arguments["input_size"][-spatial:] if backward else call.all_dims(value)[-spatial:]
        sizes, outs = static_sizes(inner), static_sizes(call.arguments["output_size"])
        aligned = call.arguments.get("align_corners")
        matrix_of = _upsampler(name, spatial, aligned, _scales(call, spatial))
        matrices = [matrix_of(axis, size, out) for axis, (size, out) in enumerate(zip(sizes, outs, strict=True))]
        return applied(call, value, matrices, backward)

    return convert


for _name in (*_SMOOTH, *_NEAREST):
    converter(f"aten::{_name}_backward")(_resampled(_name, backward=True))
for _name in ("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"):
    converter(f"aten::{_name}")(_resampled(_name, backward=False))


def _interpolated(name: str) -> Callable[[Call], Value]:
    """ONNX's Resize by sizes, where the distance between samples is the ratio of the sizes; else a matrix."""
    spatial = int(name[-2])
    by_matrix = _resampled(name, backward=False)
    mode = "cubic" if "cubic" in name else "linear"

    def convert(call: Call) -> Value:
        value, outs = call.arguments["self"], call.arguments["output_size"]
        aligned, scales = call.arguments["align_corners"], _scales(call, spatial)
        dims = call.all_dims(value)
        if not aligned and not all(map(_is_ratio, scales, outs, dims[-spatial:])):
            return by_matrix(call)
        if not is_float(value.dtype):
            raise Refused("fractions of whole numbers")
        return call.op(
            "Resize", value, None, None, call.vector([*dims[:-spatial], *outs]), mode=mode, cubic_coeff_a=-0.75,
            coordinate_transformation_mode="align_corners" if aligned else "half_pixel",
        )  # fmt: skip

    return convert


def _is_ratio(scale: float | None, out: Any, size: Any) -> bool:
    """Whether a given scale says no more than the sizes do."""
    return scale is None or (float(scale).is_integer() and size * int(scale) == out) or out == size * scale


for _name in _ALIGNED:
    converter(f"aten::{_name}")(_interpolated(_name))


def _average(size: int, out: int) -> Matrix:
    return unit_response(lambda unit: torch.nn.functional.adaptive_avg_pool1d(unit[None], out)[0], size)


@converter("aten::_adaptive_avg_pool2d", "aten::_adaptive_avg_pool3d")
def adaptive_average(call: Call, self: Value, output_size: Sequence[Any]) -> Value:
    spatial = len(output_size)
    if all(out == 1 for out in output_size):
        return call.op("ReduceMean", self, list(range(-spatial, 0)), keepdims=1)
    sizes, outs = static_sizes(call.all_dims(self)[-spatial:]), static_sizes(output_size)
    if all(size % out == 0 for size, out in zip(sizes, outs, strict=True)) and call.rank(self) == spatial + 2:
        window = [size // out for size, out in zip(sizes, outs, strict=True)]
        return call.op("AveragePool", self, kernel_shape=window, strides=window)
    return applied(call, self, [_average(s, o) for s, o in zip(sizes, outs, strict=True)], backward=False)


@converter("aten::_adaptive_avg_pool2d_backward", "aten::_adaptive_avg_pool3d_backward")
def adaptive_average_backward(call: Call, grad_output: Value, self: Value) -> Value:
    spatial = 2 if "2d" in call.name else 3
    sizes, outs = static_sizes(call.all_dims(self)[-spatial:]), static_sizes(call.all_dims(grad_output)[-spatial:])
    return applied(call, grad_output, [_average(s, o) for s, o in zip(sizes, outs, strict=True)], backward=True)
