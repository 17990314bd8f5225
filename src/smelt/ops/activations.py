"""Activations. Attributes are float32 numbers, in float64 tensors too."""

from __future__ import annotations

import math
from collections.abc import Callable

from smelt.ir.kernel import Expr, Tensor, Unsupported
from smelt.ir.kernel import expr as E
from smelt.ops.elementwise import float_operand, number, same_type
from smelt.ops.registry import Call, op

SQRT_HALF = math.sqrt(0.5)
GELU_SLOPE = math.sqrt(2.0 / math.pi)
GELU_CUBE = 0.044715
# HardSwish is defined by a HardSigmoid whose attribute is a float32 number.
SIXTH = float.fromhex("0x1.555556p-3")


def negative_side(x: Expr, yes: Expr) -> Expr:
    """`yes` below zero, x elsewhere; NaN stays NaN."""
    return E.select(E.op("lt", x, number(0, x)), yes, x)


def scaled(x: Expr, factor: float) -> Expr:
    return E.op("mul", x, number(factor, x))


def between(x: Expr, low: float, high: float) -> Expr:
    return E.op("min", E.op("max", x, number(low, x)), number(high, x))


def apply(call: Call, body: Callable[[Expr], Expr]) -> Tensor:
    return call.k.map(body, float_operand(call))


@op("Relu", since=7, kind="elementwise")
def relu(call: Call) -> Tensor:
    return call.k.map(lambda x: E.op("max", x, number(0, x)), call.x())


@op("LeakyRelu", since=7, kind="elementwise")
def leaky_relu(call: Call) -> Tensor:
    alpha = call.float("alpha", 0.01)
    return apply(call, lambda x: negative_side(x, scaled(x, alpha)))


@op("PRelu", since=7, kind="elementwise")
def prelu(call: Call) -> Tensor:
    """The slope broadcasts to x, never x to the slope."""
    x, slope = same_type(call.x(0), call.x(1))
    if slope.rank > x.rank:
        raise Unsupported("the slope of PRelu has more axes than its input")
    made = call.k.map(lambda v, s: negative_side(v, E.op("mul", s, v)), x, slope)
    for got, wanted in zip(made.shape, x.shape, strict=True):
        call.k.require_equal(got, wanted, "the slope of PRelu must broadcast to its input")
    return made


@op("Elu", since=7, kind="elementwise", flops=18)
def elu(call: Call) -> Tensor:
    alpha = call.float("alpha", 1.0)
    return apply(call, lambda x: negative_side(x, scaled(E.op("expm1", x), alpha)))


@op("Celu", since=12, kind="elementwise")
def celu(call: Call) -> Tensor:
    alpha = call.float("alpha", 1.0)
    return apply(call, lambda x: negative_side(x, scaled(E.op("expm1", E.op("div", x, number(alpha, x))), alpha)))


@op("Selu", since=7, kind="elementwise", flops=19)
def selu(call: Call) -> Tensor:
    alpha, gamma = call.float("alpha", 1.67326319217681884765625), call.float("gamma", 1.05070102214813232421875)
    return apply(call, lambda x: scaled(negative_side(x, scaled(E.op("expm1", x), alpha)), gamma))


@op("Softsign", since=7, kind="elementwise")
def softsign(call: Call) -> Tensor:
    return apply(call, lambda x: E.op("div", x, E.op("add", number(1, x), E.op("abs", x))))


def hard_sigmoid_of(x: Expr, alpha: float, beta: float) -> Expr:
    return between(E.op("add", scaled(x, alpha), number(beta, x)), 0.0, 1.0)


@op("HardSigmoid", since=7, kind="elementwise", flops=3)
def hard_sigmoid(call: Call) -> Tensor:
    alpha, beta = call.float("alpha", 0.2), call.float("beta", 0.5)
    return apply(call, lambda x: hard_sigmoid_of(x, alpha, beta))


@op("HardSwish", since=14, kind="elementwise", flops=4)
def hard_swish(call: Call) -> Tensor:
    return apply(call, lambda x: E.op("mul", x, hard_sigmoid_of(x, SIXTH, 0.5)))


def swish_of(x: Expr, alpha: float) -> Expr:
    return E.op("mul", x, E.op("sigmoid", scaled(x, alpha)))


@op("Swish", since=24, kind="elementwise", flops=21)
def swish(call: Call) -> Tensor:
    alpha = call.float("alpha", 1.0)
    return apply(call, lambda x: swish_of(x, alpha))


@op("Mish", since=18, kind="elementwise", flops=60)
def mish(call: Call) -> Tensor:
    return apply(call, lambda x: E.op("mul", x, E.op("tanh", E.op("softplus", x))))


def gelu_of(x: Expr) -> Expr:
    """x/2 * (1 + erf(x / sqrt 2))."""
    return E.op("gelu", x)


def tanh_gelu_of(x: Expr) -> Expr:
    """x/2 * (1 + tanh(u)) is x * sigmoid(2u), without the cancellation at negative x."""
    cubic = E.op("add", number(1, x), scaled(E.op("mul", x, x), GELU_CUBE))
    return E.op("mul", x, E.op("sigmoid", E.op("mul", scaled(x, 2.0 * GELU_SLOPE), cubic)))


@op("Gelu", since=20, kind="elementwise", cost="heavy", flops=28)
def gelu(call: Call) -> Tensor:
    kinds = {"none": gelu_of, "tanh": tanh_gelu_of}
    approximate = call.str("approximate", "none")
    if approximate not in kinds:
        raise Unsupported("approximate of Gelu is neither none nor tanh")
    return apply(call, kinds[approximate])


@op("ThresholdedRelu", since=10, kind="elementwise", steps=True)
def thresholded_relu(call: Call) -> Tensor:
    alpha = call.float("alpha", 1.0)
    return apply(call, lambda x: E.select(E.op("gt", x, number(alpha, x)), x, number(0, x)))


@op("Shrink", since=9, kind="elementwise", steps=True)
def shrink(call: Call) -> Tensor:
    bound, bias = call.float("lambd", 0.5), call.float("bias", 0.0)
    x = call.x()
    if x.dtype in E.FLOATS:
        return call.k.map(lambda v: _shrunk(v, -bound, bound, bias), x)
    if not bias.is_integer():
        raise Unsupported("Shrink of integers needs a whole bias")
    low, high = (math.ceil(-bound), math.floor(bound)) if math.isfinite(bound) else (-INT_RANGE, INT_RANGE)
    return call.k.map(lambda v: _shrunk(v, low, high, int(bias)), x)


INT_RANGE = 2**64


def _shrunk(x: Expr, low: float, high: float, bias: float) -> Expr:
    inner = E.select(_beyond("gt", x, high), E.op("sub", x, number(bias, x)), number(0, x))
    return E.select(_beyond("lt", x, low), E.op("add", x, number(bias, x)), inner)


def _beyond(name: str, x: Expr, bound: float) -> Expr:
    """A comparison with a bound that the type may be unable to hold."""
    if x.dtype in E.FLOATS:
        return E.op(name, x, number(bound, x))
    bits = 8 * E.SIZE_BYTES[x.dtype]
    least, most = (0, 2**bits - 1) if x.dtype in E.UNSIGNED else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if least <= bound <= most:
        return E.op(name, x, number(bound, x))
    return E.const((bound < least) == (name == "gt"), "b")
