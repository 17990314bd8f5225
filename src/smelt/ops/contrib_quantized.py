"""Operators of com.microsoft on bytes that multiply no matrices: Add, Mul, activations, Softmax, pools, Concat.

Input: quantized tensors, each followed by its scale and zero point, of the whole tensor; a missing zero point is 0.
Output: bytes of the same type. Invariant: the rounding is stock's, half to even: element-wise sums and products and the
means of windows are rounded after the zero point is added, all others before, so that ties differ by its parity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final
from typing import cast as typed

from smelt.ir.kernel import Expr, Tensor, Unsupported, product
from smelt.ir.kernel import expr as E

from .activations import negative_side, scaled
from .elementwise import number
from .pooling import average_pool
from .quantize import saturated
from .quantized_operators import BYTES, MICROSOFT, centred
from .reduction import static_axis
from .registry import Call, op
from .work import pool_work, read_work

FLATTENED_BEFORE: Final = 13  # until this opset Softmax goes over all axes from its own on


@dataclass(frozen=True)
class Steps:
    """How bytes stand for numbers: scalars; without a zero point it is 0."""

    scale: Tensor
    zero: Tensor | None
    dtype: str


def _steps(call: Call, place: int, dtype: str) -> Steps:
    """The scale at this place of the inputs, and the zero point behind it."""
    scale, zero = call.x(place), call.maybe(place + 1)
    if scale.dtype != "f32" or scale.elements.const != 1:
        raise Unsupported("a scale that is not one float32")
    if dtype not in BYTES or (zero is not None and (zero.dtype != dtype or zero.elements.const != 1)):
        raise Unsupported(f"a zero point that is not one number of the type of its tensor, {dtype}")
    return Steps(call.k.reshape(scale, ()), None if zero is None else call.k.reshape(zero, ()), dtype)


def _shift(call: Call, steps: Steps) -> Tensor:
    """The zero point as float32."""
    return call.k.const(0.0, "f32") if steps.zero is None else call.k.cast(steps.zero, "f32")


def _restored(call: Call, q: Tensor, steps: Steps) -> Tensor:
    whole = centred(call, q, steps.zero, 0)
    return call.k.map(lambda value, scale: E.op("mul", value, scale), whole, steps.scale)


def _rounded_last(call: Call, x: Tensor, steps: Steps) -> Tensor:
    """Bytes of x, in steps, to which the zero point is added before rounding."""

    def body(value: Expr, shift: Expr) -> Expr:
        return saturated(E.op("round", E.op("add", value, shift)), steps.dtype)

    return call.k.map(body, x, _shift(call, steps))


def _rounded_first(call: Call, x: Tensor, steps: Steps) -> Tensor:
    def body(value: Expr, shift: Expr) -> Expr:
        return saturated(E.op("add", E.op("round", value), shift), steps.dtype)

    return call.k.map(body, x, _shift(call, steps))


def _in_steps(call: Call, x: Tensor, steps: Steps) -> Tensor:
    return call.k.map(lambda value, scale: E.op("div", value, scale), x, steps.scale)


def _ratio(call: Call, above: Tensor, below: Tensor) -> Tensor:
    return call.k.map(lambda a, b: E.op("div", a, b), above, below)


def _steps_of_two(call: Call) -> tuple[Steps, Steps, Steps]:
    """Of two operands and the result, all of one type."""
    dtype, other = call.x(0).dtype, call.x(3).dtype
    if other != dtype:
        raise Unsupported(f"operands of {dtype} and {other}")
    return _steps(call, 1, dtype), _steps(call, 4, dtype), _steps(call, 6, dtype)


@op("QLinearAdd", domain=MICROSOFT, kind="elementwise", steps=True, flops=6)
def qlinear_add(call: Call) -> Tensor:
    """Inputs: A, its scale and zero point, the same of B, scale and zero point of the result."""
    a, b = call.x(0), call.x(3)
    own, other, result = _steps_of_two(call)
    left, right = (_ratio(call, steps.scale, result.scale) for steps in (own, other))

    def constant(za: Expr, zb: Expr, zc: Expr, ra: Expr, rb: Expr) -> Expr:
        return E.op("sub", zc, E.op("add", E.op("mul", ra, za), E.op("mul", rb, zb)))

    shifts = [_shift(call, steps) for steps in (own, other, result)]
    fixed = call.k.map(constant, *shifts, left, right)

    def body(x: Expr, y: Expr, ra: Expr, rb: Expr, rest: Expr) -> Expr:
        total = E.op("add", rest, E.op("mul", E.cast(y, "f32"), rb))
        total = E.op("add", total, E.op("mul", E.cast(x, "f32"), ra))
        return saturated(E.op("round", total), result.dtype)

    return call.k.map(body, a, b, left, right, fixed)


@op("QLinearMul", domain=MICROSOFT, kind="elementwise", steps=True, flops=6)
def qlinear_mul(call: Call) -> Tensor:
    """Inputs: those of QLinearAdd."""
    a, b = call.x(0), call.x(3)
    own, other, result = _steps_of_two(call)
    both = call.k.map(lambda x, y: E.op("mul", x, y), own.scale, other.scale)
    left, right = centred(call, a, own.zero, 0), centred(call, b, other.zero, 0)
    ratio = _ratio(call, both, result.scale)
    made = call.k.map(lambda x, y, scale: E.op("mul", E.op("mul", x, y), scale), left, right, ratio)
    return _rounded_last(call, made, result)


def _activated(call: Call, body: Callable[[Expr], Expr]) -> Tensor:
    """Inputs: X, its scale and zero point, scale and zero point of the result."""
    x = call.x(0)
    result = _steps(call, 3, x.dtype)
    values = call.k.map(body, _restored(call, x, _steps(call, 1, x.dtype)))
    return _rounded_first(call, _in_steps(call, values, result), result)


@op("QLinearSigmoid", domain=MICROSOFT, kind="elementwise", steps=True, flops=25)
def qlinear_sigmoid(call: Call) -> Tensor:
    return _activated(call, lambda x: E.op("sigmoid", x))


@op("QLinearLeakyRelu", domain=MICROSOFT, kind="elementwise", steps=True, flops=7)
def qlinear_leaky_relu(call: Call) -> Tensor:
    alpha = call.float("alpha", 0.01)
    return _activated(call, lambda x: negative_side(x, scaled(x, alpha)))


@op("QLinearSoftmax", domain=MICROSOFT, kind="normalization", steps=True, flops=24)
def qlinear_softmax(call: Call) -> Tensor:
    """Inputs: those of QLinearSigmoid. As in stock, a share is counted in whole steps: the floor of 1 / scale."""
    k, x, version = call.k, call.x(0), call.int("opset")
    own, result = _steps(call, 1, x.dtype), _steps(call, 3, x.dtype)
    axis = static_axis(call.int("axis", -1), x.rank)
    axes = list(range(axis, x.rank)) if version < FLATTENED_BEFORE else [axis]
    whole = k.cast(x, "f32")

    def power(value: Expr, top: Expr, scale: Expr) -> Expr:
        return E.op("exp", E.op("mul", E.op("sub", value, top), scale))

    powers = k.map(power, whole, k.reduce("max", whole, axes), own.scale)
    count = k.map(lambda scale: E.op("floor", E.op("div", number(1.0, scale), scale)), result.scale)
    share = k.map(
        lambda e, c, total: E.op("div", E.op("mul", e, c), total), powers, count, k.reduce("sum", powers, axes)
    )
    return _rounded_first(call, share, result)


@op("QLinearConcat", domain=MICROSOFT, kind="movement", steps=True)
def qlinear_concat(call: Call) -> Tensor:
    """Inputs: scale and zero point of the result, then tensors, each with its own. Equal ones are copied."""
    operands = range(2, len(call.inputs), 3)
    if not operands or len(call.inputs) % 3 != 2:
        raise Unsupported("each operand needs a scale and a zero point")
    dtype, rank = call.x(2).dtype, call.x(2).rank
    if any(call.x(place).dtype != dtype or call.x(place).rank != rank for place in operands):
        raise Unsupported("concatenated tensors differ in rank or type")
    result = _steps(call, 0, dtype)
    parts = [_in_steps_of(call, place, result) for place in operands]
    return call.k.concat(parts, static_axis(call.int("axis"), rank))


def _in_steps_of(call: Call, place: int, result: Steps) -> Tensor:
    x, own = call.x(place), _steps(call, place + 1, result.dtype)
    if call.x(place + 1) is call.x(0) and call.maybe(place + 2) is call.maybe(1):
        return x
    return _rounded_first(call, _in_steps(call, _restored(call, x, own), result), result)


# images


def _channels_first(call: Call) -> Tensor:
    x = call.x(0)
    if x.rank < 3:
        raise Unsupported(f"an image of rank {x.rank}")
    last = call.int("channels_last", 0) != 0
    return call.k.transpose(x, (0, x.rank - 1, *range(1, x.rank - 1))) if last else x


def _channels_as_given(call: Call, x: Tensor) -> Tensor:
    last = call.int("channels_last", 0) != 0
    return call.k.transpose(x, (0, *range(2, x.rank), 1)) if last else x


@op("QLinearGlobalAveragePool", domain=MICROSOFT, kind="window", steps=True, work=read_work)
def qlinear_global_average_pool(call: Call) -> Tensor:
    """Inputs: those of QLinearSigmoid. Sums are those of integers."""
    k, x = call.k, _channels_first(call)
    own, result = _steps(call, 1, x.dtype), _steps(call, 3, x.dtype)
    sums = k.reduce("sum", centred(call, x, own.zero, 0, "i32"), list(range(2, x.rank)))
    count = E.cast(E.index(product(x.shape[2:])), "f32")
    factor = k.map(lambda a, b: E.op("div", a, E.op("mul", b, count)), own.scale, result.scale)
    made = k.map(lambda total, scale: E.op("mul", E.cast(total, "f32"), scale), sums, factor)
    return _channels_as_given(call, _rounded_first(call, made, result))


@op("QLinearAveragePool", domain=MICROSOFT, kind="window", steps=True, work=pool_work)
def qlinear_average_pool(call: Call) -> Tensor:
    """Inputs: those of QLinearSigmoid."""
    if call.int("ceil_mode", 0) and call.int("count_include_pad", 0):
        raise Unsupported("a mean that counts padding beyond the image's own, which stock does in its own way")
    x = _channels_first(call)
    own, result = _steps(call, 1, x.dtype), _steps(call, 3, x.dtype)
    pool = replace(call, op="AveragePool", opset=11, inputs=[_restored(call, x, own)])
    made = _in_steps(call, typed("Tensor", average_pool(pool)), result)
    return _channels_as_given(call, _rounded_last(call, made, result))
