"""Gradients of pooling, and unpooling.

Input: the gradient of the pooled tensor. Output: the gradient of the input. Invariant: maxima send their gradient to
the element whose index was kept, and gradients that meet there add up; averages are linear maps along each axis, so
their gradient is a product with the transposed matrices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from smelt.export.aten.resampling import Matrix, applied, static_sizes, unit_response
from smelt.export.call import Call
from smelt.export.dtypes import INT64
from smelt.export.registry import converter
from smelt.export.sizes import Dim

Value = ir.Value


def _scattered(call: Call, source: Value, indices: Value, sizes: Sequence[Dim], reduction: str) -> Value:
    """`source` put at flat `indices` of the last axes, which have `sizes` in the result."""
    spatial = len(sizes)
    leading = call.all_dims(source)[:-spatial]
    flat = [*leading, _product(call.all_dims(source)[-spatial:])]
    target = call.filled([*leading, _product(sizes)], 0, source.dtype)
    at, what = call.reshape(call.cast(indices, INT64), flat), call.reshape(source, flat)
    filled = call.op("ScatterElements", target, at, what, axis=len(leading), reduction=reduction)
    return call.reshape(filled, [*leading, *sizes])


def _product(sizes: Sequence[Dim]) -> Dim:
    return math.prod(sizes)


def _spatial_rank(call: Call) -> int:
    return 3 if "3d" in call.name else 2


@converter(
    "aten::max_pool2d_with_indices_backward", "aten::max_pool3d_with_indices_backward",
    "aten::adaptive_max_pool2d_backward", "aten::adaptive_max_pool3d_backward", "aten::fractional_max_pool2d_backward",
    "aten::fractional_max_pool3d_backward",
)  # fmt: skip
def max_pool_backward(call: Call) -> Value:
    gradient, input, indices = (call.arguments[name] for name in ("grad_output", "self", "indices"))
    return _scattered(call, gradient, indices, call.all_dims(input)[-_spatial_rank(call) :], "add")


@converter("aten::max_unpool2d", "aten::max_unpool3d")
def max_unpool(call: Call) -> Value:
    return _scattered(
        call, call.arguments["self"], call.arguments["indices"], call.dims[-_spatial_rank(call) :], "none"
    )


def average_matrices(
    sizes: Sequence[Any], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], ceil_mode: bool,
    count_include_pad: bool, divisor: int | None,
) -> list[Matrix]:  # fmt: skip
    """Pooling by averages as a matrix along each axis."""
    rank = len(sizes)
    kernel, padding = _wide(kernel, rank), _wide(padding, rank)
    stride = _wide(stride, rank) if stride else kernel

    def of(size: int, k: int, s: int, p: int) -> Matrix:
        pooled = unit_response(
            lambda unit: torch.nn.functional.avg_pool1d(unit[None], k, s, p, ceil_mode, count_include_pad)[0], size
        )
        return pooled if divisor is None else (pooled != 0).astype(pooled.dtype)

    matrices = [of(*each) for each in zip(static_sizes(sizes), kernel, stride, padding, strict=True)]
    if divisor is not None:
        matrices[0] = matrices[0] / divisor
    return matrices


def _wide(numbers: Sequence[int], rank: int) -> list[int]:
    return [*numbers] * rank if len(numbers) == 1 else [*numbers]


@converter("aten::avg_pool2d_backward", "aten::avg_pool3d_backward")
def average_pool_backward(
    call: Call, grad_output: Value, self: Value, kernel_size: Sequence[int], stride: Sequence[int],
    padding: Sequence[int], ceil_mode: bool, count_include_pad: bool, divisor_override: int | None,
) -> Value:  # fmt: skip
    sizes = call.all_dims(self)[-_spatial_rank(call) :]
    matrices = average_matrices(sizes, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return applied(call, grad_output, matrices, backward=True)


@converter("aten::replication_pad1d_backward", "aten::replication_pad2d_backward", "aten::replication_pad3d_backward")
def replication_pad_backward(call: Call, grad_output: Value, self: Value, padding: Sequence[int]) -> Value:
    spatial = len(padding) // 2
    sizes = static_sizes(call.all_dims(self)[-spatial:])
    pads = [(padding[2 * axis], padding[2 * axis + 1]) for axis in reversed(range(spatial))]

    def of(size: int, pad: tuple[int, int]) -> Matrix:
        return unit_response(lambda unit: torch.nn.functional.pad(unit[None], pad, "replicate")[0], size)

    return applied(call, grad_output, [of(s, p) for s, p in zip(sizes, pads, strict=True)], backward=True)


@converter("aten::hardshrink_backward", "aten::softshrink_backward")
def shrink_backward(call: Call) -> Value:
    gradient = call.arguments["grad_out" if "hard" in call.name else "grad_output"]
    input, bound = call.arguments["self"], call.arguments["lambd"]
    inside = call.op("LessOrEqual", call.op("Abs", input), call.scalar(bound, input.dtype))
    return call.op("Where", inside, call.scalar(0.0), gradient)
