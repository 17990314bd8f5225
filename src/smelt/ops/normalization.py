"""Normalizations of the ONNX domain: by mean and variance, by root mean square, by a norm.

Input: a tensor, and parameters that broadcast onto it. Output: the same shape. Invariant: a variance is the mean of
squared deviations from a mean computed before (two passes), never a difference of two large numbers; rows of equal
values deviate by exactly 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from smelt.ir.kernel import Builder, Expr, Ix, Tensor, Unsupported, View, fn, ix
from smelt.ir.kernel import expr as E
from smelt.ops.reduction import euclidean_norm, mean_over, square, static_axis, sum_of_magnitudes
from smelt.ops.registry import SHORT, Call, op

Array = np.ndarray[Any, Any]
WINDOW_LIMIT = 64


@dataclass(frozen=True)
class Standardized:
    """x with mean 0 and variance 1 over some axes, and the statistics it took (reduced axes kept as 1)."""

    y: Tensor
    mean: Tensor
    inverse: Tensor


def inverse_root(k: Builder, x: Tensor, epsilon: float) -> Tensor:
    one, small = E.const(1, x.dtype), E.const(epsilon, x.dtype)
    return k.map(lambda v: E.op("div", one, E.op("sqrt", E.op("add", v, small))), x)


def multiply(k: Builder, a: Tensor, b: Tensor) -> Tensor:
    return k.map(lambda x, y: E.op("mul", x, y), a, b)


def add(k: Builder, a: Tensor, b: Tensor) -> Tensor:
    return k.map(lambda x, y: E.op("add", x, y), a, b)


def moments(k: Builder, x: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Mean and variance in two passes.

    A sum of equal values is rounded, so its mean is not the value itself, and what is left of a row of equal values
    would be divided by nearly nothing. The deviations are summed beside their squares: they are a few units in the last
    place each, so their mean is nearly exact, and it is what the first mean lacks. The squares hold it
    too."""
    first = mean_over(k, x, axes)
    deviation = subtract(k, x, first)
    lack = mean_over(k, deviation, axes)
    around_first = mean_over(k, k.map(square, deviation), axes)
    return add(k, first, lack), k.map(_around_mean, around_first, lack)


def _around_mean(variance: Expr, lack: Expr) -> Expr:
    """The variance around a mean that lacked so much. Below 0 it is rounding, whose sign tells nothing."""
    return E.op("abs", E.op("sub", variance, square(lack)))


def subtract(k: Builder, a: Tensor, b: Tensor) -> Tensor:
    return k.map(lambda x, y: E.op("sub", x, y), a, b)


def standardize(k: Builder, x: Tensor, axes: Sequence[int], epsilon: float) -> Standardized:
    mean, variance = moments(k, x, axes)
    inverse = inverse_root(k, variance, epsilon)
    return Standardized(multiply(k, subtract(k, x, mean), inverse), mean, inverse)


def by_root_mean_square(k: Builder, x: Tensor, axes: Sequence[int], epsilon: float) -> tuple[Tensor, Tensor]:
    """x over its root mean square, and the inverse of that root."""
    inverse = inverse_root(k, mean_over(k, k.map(square, x), axes), epsilon)
    return multiply(k, x, inverse), inverse


def onto(k: Builder, p: Tensor, shape: Sequence[Ix]) -> Tensor:
    """A parameter broadcast to a shape that it may not enlarge. Sizes known only at run time are checked there."""
    if p.rank > len(shape):
        raise Unsupported(f"a parameter of rank {p.rank} does not broadcast onto rank {len(shape)}")
    skip = len(shape) - p.rank
    steps: list[Ix] = []
    for size, target in zip(p.shape, shape[skip:], strict=True):
        same = size == target
        if not same:
            k.require_equal(
                fn("sel", fn("ne1", size), size, target), target, "a parameter must broadcast onto the input"
            )
        steps.append(ix(1) if same else fn("ne1", size))
    return k.view(p, shape, lambda w: [i * s for i, s in zip(w[skip:], steps, strict=True)])


def per_channel(k: Builder, p: Tensor, x: Tensor) -> Tensor:
    """A vector with one element for each channel, as a tensor of x's shape. A vector x has one channel."""
    channels = x.shape[1] if x.rank > 1 else ix(1)
    if p.rank != 1:
        raise Unsupported(f"a channel parameter of rank {p.rank} is not a vector")
    k.require_equal(p.shape[0], channels, "a channel parameter must have one element for each channel")
    return k.view(p, x.shape, lambda w: [w[1] if x.rank > 1 else ix(0)])


def stash_dtype(call: Call) -> str:
    """The dtype in which statistics are given out."""
    stash = SHORT.get(ir.DataType(call.int("stash_type", 1)))
    if stash not in E.FLOATS:
        raise Unsupported("stash_type is neither float nor double")
    return stash


def stage_dtype(x: Tensor, stash: str) -> str:
    """The dtype of the statistics' computation: never narrower than the input."""
    return "f64" if "f64" in (x.dtype, stash) else "f32"


def trailing_axes(call: Call, x: Tensor) -> list[int]:
    return list(range(static_axis(call.int("axis", -1), x.rank), x.rank))


def scale_and_shift(k: Builder, y: Tensor, scale: Tensor, shift: Tensor | None) -> Tensor:
    scaled = multiply(k, y, onto(k, k.cast(scale, y.dtype), y.shape))
    return scaled if shift is None else add(k, scaled, onto(k, k.cast(shift, y.dtype), y.shape))


def requested(call: Call, outputs: Sequence[Tensor | None]) -> list[Tensor | None]:
    return list(outputs[: call.n_outputs])


# over trailing axes


def layer_norm_reference(
    x: Array, scale: Array, bias: Array | None = None, axis: int = -1, epsilon: float = 1e-5, **_: Any
) -> tuple[Array, Array, Array]:
    axes = tuple(range(axis % x.ndim, x.ndim))
    mean = x.mean(axis=axes, keepdims=True)
    deviation = x - mean
    inverse = 1 / np.sqrt((deviation * deviation).mean(axis=axes, keepdims=True) + epsilon)
    y = deviation * inverse * scale
    return (y if bias is None else y + bias), mean, inverse


# ONNX Runtime knows the op from opset 1 on.
@op("LayerNormalization", since=1, kind="normalization", flops=8, reference=layer_norm_reference)
def layer_norm(call: Call) -> list[Tensor | None]:
    k, x, stash = call.k, call.x(), stash_dtype(call)
    done = standardize(k, k.cast(x, stage_dtype(x, stash)), trailing_axes(call, x), call.float("epsilon", 1e-5))
    y = k.cast(scale_and_shift(k, k.cast(done.y, x.dtype), call.x(1), call.maybe(2)), x.dtype)
    return requested(call, [y, k.cast(done.mean, stash), k.cast(done.inverse, stash)])


def rms_norm_reference(
    x: Array, scale: Array, axis: int = -1, epsilon: float = 1e-5, **_: Any
) -> tuple[Array, Array]:  # fmt: skip
    axes = tuple(range(axis % x.ndim, x.ndim))
    inverse = 1 / np.sqrt((x * x).mean(axis=axes, keepdims=True) + epsilon)
    return x * inverse * scale, inverse


def _first_of_rms_norm(x: Array, scale: Array, **attributes: Any) -> Array:
    return rms_norm_reference(x, scale, **attributes)[0]


@op("RMSNormalization", since=23, kind="normalization", flops=5, reference=_first_of_rms_norm)
@op("SimplifiedLayerNormalization", kind="normalization", flops=5, reference=rms_norm_reference)
@op("SimplifiedLayerNormalization", kind="normalization", domain="com.microsoft", flops=5, reference=rms_norm_reference)
def rms_norm(call: Call) -> list[Tensor | None]:
    k, x, stash = call.k, call.x(), stash_dtype(call)
    stage = k.cast(x, stage_dtype(x, stash))
    y, inverse = by_root_mean_square(k, stage, trailing_axes(call, x), call.float("epsilon", 1e-5))
    out = scale_and_shift(k, k.cast(y, x.dtype), call.x(1), None)
    return requested(call, [out, k.cast(inverse, stash)])


# over channels


def group_norm_reference(
    x: Array, scale: Array, bias: Array, num_groups: int = 1, epsilon: float = 1e-5, **_: Any
) -> Array:
    rows = x.reshape(x.shape[0], num_groups, -1)
    deviation = rows - rows.mean(axis=2, keepdims=True)
    y = deviation / np.sqrt((deviation * deviation).mean(axis=2, keepdims=True) + epsilon)
    repeats = x.shape[1] // scale.shape[0]
    column = (1, x.shape[1], *(1,) * (x.ndim - 2))
    return y.reshape(x.shape) * np.repeat(scale, repeats).reshape(column) + np.repeat(bias, repeats).reshape(column)


def channel_groups(call: Call) -> tuple[int, Ix]:
    """The groups of group normalization, and the channels of each."""
    x, groups = call.x(), call.int("num_groups")
    if x.rank < 2:
        raise Unsupported("group normalization needs a batch and a channel dimension")
    each = x.shape[1] // groups
    call.k.require_equal(each * groups, x.shape[1], "channels must divide into groups")
    return groups, each


@op("GroupNormalization", since=18, kind="normalization", flops=8, reference=group_norm_reference)
def group_norm(call: Call) -> Tensor:
    """Until opset 20 one scale for each group, from 21 on one for each channel."""
    k, x = call.k, call.x()
    groups, each = channel_groups(call)
    stage = k.cast(x, stage_dtype(x, stash_dtype(call)))
    shape = (x.shape[0], ix(groups), each, *x.shape[2:])
    stage = k.reshape(stage, shape)
    done = standardize(k, stage, range(2, len(shape)), call.float("epsilon", 1e-5))
    scale, shift = (grouped_parameter(call, position, shape) for position in (1, 2))
    y = add(k, multiply(k, k.cast(done.y, x.dtype), scale), shift)
    return k.reshape(y, x.shape)


def grouped_parameter(call: Call, position: int, shape: Sequence[Ix]) -> Tensor:
    p, k = call.x(position), call.k
    by_channel = call.opset >= 21
    k.require_equal(p.shape[0], shape[1] * shape[2] if by_channel else shape[1], "a scale or bias has a wrong size")
    return k.view(p, shape, lambda w: [w[1] * shape[2] + w[2] if by_channel else w[1]])


@op("InstanceNormalization", since=6, kind="normalization", flops=8)
def instance_norm(call: Call) -> Tensor:
    k, x = call.k, call.x()
    done = standardize(k, x, range(2, x.rank), call.float("epsilon", 1e-5))
    return add(k, multiply(k, done.y, per_channel(k, call.x(1), x)), per_channel(k, call.x(2), x))


def batch_norm_reference(
    x: Array, scale: Array, bias: Array, mean: Array, variance: Array, epsilon: float = 1e-5, **_: Any
) -> Array:
    """Before opset 14, where onnx.reference takes the statistics of the batch even when none are requested for."""
    column = (1, -1, *(1,) * (x.ndim - 2)) if x.ndim > 1 else (-1,)
    factor = (scale / np.sqrt(variance + epsilon)).reshape(column)
    return (x - mean.reshape(column)) * factor + bias.reshape(column)


@op("BatchNormalization", since=14, kind="normalization", flops=2)
@op("BatchNormalization", since=7, before=14, kind="normalization", flops=2, reference=batch_norm_reference)
def batch_norm(call: Call) -> Tensor:
    k, x = call.k, call.x()
    if call.int("training_mode", 0) or (call.opset < 14 and call.n_outputs > 1):
        raise Unsupported("batch normalization in training mode")
    if not call.int("spatial", 1):
        raise Unsupported("batch normalization with statistics for each position (spatial=0)")
    parameters = [per_channel(k, k.cast(call.x(i), x.dtype), x) for i in range(1, 5)]
    small, one = E.const(call.float("epsilon", 1e-5), x.dtype), E.const(1, x.dtype)

    def body(e: Expr, scale: Expr, shift: Expr, mean: Expr, variance: Expr) -> Expr:
        factor = E.op("mul", E.op("div", one, E.op("sqrt", E.op("add", variance, small))), scale)
        return E.op("add", E.op("mul", E.op("sub", e, mean), factor), shift)

    return k.map(body, x, *parameters)


@op("MeanVarianceNormalization", since=9, kind="normalization")
def mean_variance_norm(call: Call) -> Tensor:
    k, x = call.k, call.x()
    axes = [static_axis(a, x.rank) for a in call.ints("axes", (0, 2, 3))]
    mean, variance = moments(k, x, axes)
    small = E.const(1e-9, x.dtype)
    root = k.map(lambda v: E.op("add", E.op("sqrt", v), small), variance)
    return k.map(lambda d, r: E.op("div", d, r), subtract(k, x, mean), root)


# by a norm


def lp_norm_reference(x: Array, axis: int = -1, p: int = 2) -> Array:
    norm = np.linalg.norm(x, ord=p, axis=axis, keepdims=True)
    return np.where(norm == 0, np.zeros((), x.dtype), x / np.where(norm == 0, np.ones((), x.dtype), norm))


@op("LpNormalization", kind="normalization", reference=lp_norm_reference)
def lp_norm(call: Call) -> Tensor:
    """A row whose norm is zero stays zero."""
    k, x = call.k, call.x()
    axis, p = static_axis(call.int("axis", -1), x.rank), call.int("p", 2)
    if p not in (1, 2):
        raise Unsupported(f"the norm of order {p}")
    norm = (sum_of_magnitudes if p == 1 else euclidean_norm)(k, x, [axis])
    zero = E.const(0, x.dtype)
    return k.map(lambda e, n: E.select(E.op("eq", n, zero), zero, E.op("div", e, n)), x, norm)


def lrn_reference(
    x: Array, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Array:  # fmt: skip
    before, after = (size - 1) // 2, size // 2
    padded = np.pad(x * x, [(0, 0), (before, after)] + [(0, 0)] * (x.ndim - 2))
    total = np.sum([padded[:, o : o + x.shape[1]] for o in range(size)], axis=0)
    return x / (bias + alpha / size * total) ** beta


@op("LRN", kind="normalization", cost="cheap", reference=lrn_reference)
def local_response_norm(call: Call) -> Tensor:
    k, x, size = call.k, call.x(), call.int("size")
    if x.rank < 2 or not 0 < size <= WINDOW_LIMIT:
        raise Unsupported(f"local response normalization of rank {x.rank} with a window of {size}")
    neighbours = [_channel_at(k, x, o) for o in range(-((size - 1) // 2), size // 2 + 1)]
    bias, share = E.const(call.float("bias", 1.0), x.dtype), E.const(call.float("alpha", 1e-4) / size, x.dtype)
    beta = E.const(call.float("beta", 0.75), x.dtype)

    def body(e: Expr, *window: Expr) -> Expr:
        total = square(window[0])
        for other in window[1:]:
            total = E.op("add", total, square(other))
        return E.op("div", e, E.op("pow", E.op("add", bias, E.op("mul", share, total)), beta))

    return k.map(body, x, *neighbours)


def _channel_at(k: Builder, x: Tensor, offset: int) -> Tensor:
    """The element some channels away, 0 where there is no such channel."""
    if not offset:
        return x
    last, zero = x.shape[1] - 1, E.const(0, x.dtype)

    def at(w: tuple[Ix, ...]) -> Expr:
        inside = fn("max", fn("min", w[1] + offset, last), 0)
        there = E.op("eq", E.index(inside), E.index(w[1] + offset))
        return E.select(there, x.at((w[0], inside, *w[2:])), zero)

    return k.make(x.shape, x.dtype, View(at, x))
