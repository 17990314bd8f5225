"""Normalizations.

Input: calls. Output: values. Invariant: a normalization that ONNX has an op for is that op; statistics that torch gives
as further results are computed apart and vanish when nobody reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from smelt.export.call import Call
from smelt.export.dtypes import FLOAT, is_float
from smelt.export.records import Refused
from smelt.export.registry import converter
from smelt.export.sizes import Dim

Value = ir.Value


def _layer_norm(
    call: Call, x: Value, shape: Sequence[Dim], weight: Value | None, bias: Value | None, eps: float
) -> Value:
    scale = weight if weight is not None else call.filled(shape, 1, x.dtype)
    return call.op("LayerNormalization", x, scale, bias, axis=-len(shape), epsilon=float(eps))


@converter("aten::layer_norm")
def layer_norm(
    call: Call, input: Value, normalized_shape: Sequence[Dim], weight: Value | None = None, bias: Value | None = None,
    eps: float = 1e-5,
) -> Value:  # fmt: skip
    return _layer_norm(call, input, normalized_shape, weight, bias, eps)


@converter("aten::native_layer_norm")
def native_layer_norm(
    call: Call, input: Value, normalized_shape: Sequence[Dim], weight: Value | None, bias: Value | None, eps: float
) -> Any:
    axes = [axis - len(normalized_shape) for axis in range(len(normalized_shape))]
    mean, rstd = _statistics(call, input, axes, eps)
    return _layer_norm(call, input, normalized_shape, weight, bias, eps), mean, rstd


def _statistics(call: Call, x: Value, axes: Sequence[int], eps: float) -> tuple[Value, Value]:
    """The mean and the reciprocal of the deviation, axes kept."""
    mean = call.op("ReduceMean", x, list(axes), keepdims=1)
    distance = call.op("Sub", x, mean)
    variance = call.op("ReduceMean", call.op("Mul", distance, distance), list(axes), keepdims=1)
    return mean, call.op("Reciprocal", call.op("Sqrt", call.op("Add", variance, call.scalar(eps, x.dtype))))


@converter("aten::rms_norm")
def rms_norm(
    call: Call, input: Value, normalized_shape: Sequence[Dim], weight: Value | None = None, eps: float | None = None
) -> Value:
    return _rms_norm(call, input, normalized_shape, weight, eps)[0]


@converter("aten::_fused_rms_norm")
def fused_rms_norm(
    call: Call, input: Value, normalized_shape: Sequence[Dim], weight: Value | None, eps: float | None
) -> Any:
    return _rms_norm(call, input, normalized_shape, weight, eps)


def _rms_norm(
    call: Call, x: Value, shape: Sequence[Dim], weight: Value | None, eps: float | None
) -> tuple[Value, Value]:
    """In float for half types, as torch computes it."""
    wide = x if x.dtype in (FLOAT, ir.DataType.DOUBLE) else call.cast(x, FLOAT)
    small = eps if eps is not None else float(_epsilon(x.dtype))
    axes = [axis - len(shape) for axis in range(len(shape))]
    square = call.op("ReduceMean", call.op("Mul", wide, wide), axes, keepdims=1)
    rstd = call.op("Reciprocal", call.op("Sqrt", call.op("Add", square, call.scalar(small, wide.dtype))))
    normal = call.op("Mul", wide, rstd)
    scaled = normal if weight is None else call.op("Mul", normal, call.cast(weight, wide.dtype))
    return call.cast(scaled), rstd


def _epsilon(dtype: ir.DataType | None) -> float:
    return {FLOAT: 2.0**-23, ir.DataType.DOUBLE: 2.0**-52, ir.DataType.FLOAT16: 2.0**-10}.get(dtype or FLOAT, 2.0**-7)


@converter("aten::group_norm")
def group_norm(
    call: Call, input: Value, num_groups: int, weight: Value | None = None, bias: Value | None = None,
    eps: float = 1e-5,
) -> Value:  # fmt: skip
    return _group_norm(call, input, num_groups, weight, bias, eps)


@converter("aten::native_group_norm")
def native_group_norm(
    call: Call, input: Value, weight: Value | None, bias: Value | None, N: Dim, C: Dim, HxW: Dim, group: int, eps: float  # noqa: N803
) -> Any:  # fmt: skip
    flat = call.reshape(input, [N, group, C // group * HxW])
    mean, rstd = _statistics(call, flat, [-1], eps)
    result = _group_norm(call, input, group, weight, bias, eps)
    return result, call.op("Squeeze", mean, [2]), call.op("Squeeze", rstd, [2])


def _group_norm(call: Call, x: Value, groups: int, weight: Value | None, bias: Value | None, eps: float) -> Value:
    """Instance normalization of the groups, then scale and shift per channel."""
    dims = call.all_dims(x)
    flat = call.op("Reshape", x, call.constant([0, groups, -1], ir.DataType.INT64), shape=[None, groups, None])
    ones, zeros = call.filled([groups], 1, x.dtype), call.filled([groups], 0, x.dtype)
    normal = call.reshape(call.op("InstanceNormalization", flat, ones, zeros, epsilon=float(eps)), dims)
    return _affine(call, normal, weight, bias)


def _affine(call: Call, x: Value, weight: Value | None, bias: Value | None) -> Value:
    """Scale and shift per channel, axis 1."""
    if weight is not None:
        x = call.op("Mul", x, _per_channel(call, call.cast(weight, x.dtype), x))
    return x if bias is None else call.op("Add", x, _per_channel(call, call.cast(bias, x.dtype), x))


def _per_channel(call: Call, vector: Value, x: Value) -> Value:
    extra = call.rank(x) - 2
    return call.op("Unsqueeze", vector, list(range(1, extra + 1))) if extra else vector


def _batch_norm(
    call: Call, x: Value, weight: Value | None, bias: Value | None, mean: Value, var: Value, eps: float
) -> Value:
    channels = [call.dim(x, 1)]
    scale = weight if weight is not None else call.filled(channels, 1, x.dtype)
    shift = bias if bias is not None else call.filled(channels, 0, x.dtype)
    return call.op("BatchNormalization", x, scale, shift, mean, var, epsilon=float(eps))


@converter("aten::batch_norm")
def batch_norm(
    call: Call, input: Value, weight: Value | None, bias: Value | None, running_mean: Value | None,
    running_var: Value | None, training: bool, momentum: float, eps: float,
) -> Value:  # fmt: skip
    if running_mean is None or running_var is None:
        return _with_batch_statistics(call, input, weight, bias, eps)[0]
    if training:
        raise Refused("batch normalization in training mode changes its buffers")
    return _batch_norm(call, input, weight, bias, running_mean, running_var, eps)


@converter("aten::_native_batch_norm_legit_no_training")
def batch_norm_no_training(
    call: Call, input: Value, weight: Value | None, bias: Value | None, running_mean: Value, running_var: Value,
    momentum: float, eps: float,
) -> Any:  # fmt: skip
    empty = call.constant([], FLOAT)
    return _batch_norm(call, input, weight, bias, running_mean, running_var, eps), empty, empty


def _with_batch_statistics(
    call: Call, x: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value]:
    """Normalized by the batch's own mean and variance; the mean and 1/deviation per channel."""
    axes = [axis for axis in range(call.rank(x)) if axis != 1]
    mean, rstd = _statistics(call, x, axes, eps)
    normal = call.op("Mul", call.op("Sub", x, mean), rstd)
    return _affine(call, normal, weight, bias), call.op("Squeeze", mean, axes), call.op("Squeeze", rstd, axes)


@converter("aten::_native_batch_norm_legit.no_stats")
def batch_norm_no_statistics(
    call: Call,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    return _with_batch_statistics(call, input, weight, bias, eps)


@converter("aten::native_batch_norm", "aten::_native_batch_norm_legit", "aten::_native_batch_norm_legit_functional")
def native_batch_norm(
    call: Call, input: Value, weight: Value | None, bias: Value | None, running_mean: Value | None,
    running_var: Value | None, training: bool, momentum: float, eps: float,
) -> Any:  # fmt: skip
    """The functional form gives new running statistics as well; the others may not be asked to change theirs."""
    functional = call.name.endswith("_functional")
    if not training:
        if running_mean is None or running_var is None:
            raise Refused("evaluation without running statistics")
        empty = call.constant([], FLOAT)
        results = (_batch_norm(call, input, weight, bias, running_mean, running_var, eps), empty, empty)
        return (*results, running_mean, running_var) if functional else results
    results = _with_batch_statistics(call, input, weight, bias, eps)
    if not functional:
        if running_mean is not None:
            raise Refused("batch normalization in training mode changes its buffers")
        return results
    if running_mean is None or running_var is None:
        raise Refused("training without running statistics")
    return (*results, *_updated(call, input, running_mean, running_var, momentum))


def _updated(call: Call, x: Value, mean: Value, var: Value, momentum: float) -> tuple[Value, Value]:
    """Running statistics after this batch; the variance counts with n - 1."""
    axes = [axis for axis in range(call.rank(x)) if axis != 1]
    here = call.op("ReduceMean", x, axes, keepdims=1)
    distance = call.op("Sub", x, here)
    count: Any = 1
    for axis in axes:
        count = count * call.dim(x, axis)
    total = call.op("ReduceSum", call.op("Mul", distance, distance), axes, keepdims=0)
    unbiased = call.op("Div", total, call.scalar(count - 1, x.dtype))
    keep, take = call.scalar(1 - momentum, mean.dtype), call.scalar(momentum, mean.dtype)
    pairs = ((mean, call.op("Squeeze", here, axes)), (var, unbiased))
    new = [
        call.op("Add", call.op("Mul", old, keep), call.op("Mul", call.cast(now, old.dtype), take)) for old, now in pairs
    ]
    return new[0], new[1]


@converter("aten::instance_norm")
def instance_norm(
    call: Call, input: Value, weight: Value | None, bias: Value | None, running_mean: Value | None,
    running_var: Value | None, use_input_stats: bool, momentum: float, eps: float,
) -> Value:  # fmt: skip
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise Refused("evaluation without running statistics")
        return _batch_norm(call, input, weight, bias, running_mean, running_var, eps)
    if running_mean is not None or not is_float(input.dtype):
        raise Refused("instance normalization that changes its buffers")
    channels = [call.dim(input, 1)]
    scale = weight if weight is not None else call.filled(channels, 1, input.dtype)
    shift = bias if bias is not None else call.filled(channels, 0, input.dtype)
    return call.op("InstanceNormalization", input, scale, shift, epsilon=float(eps))
