"""Numbers taken apart: signs, exponents, neighbours, common divisors.

Input: calls. Output: values. Invariant: the bits of a float are reached by arithmetic alone (ONNX has no bit cast that
every runtime knows), so results are exact where torch's are.
"""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

from smelt.export.aten.repetition import repeated
from smelt.export.call import Call
from smelt.export.dtypes import DOUBLE, FLOAT, INT64
from smelt.export.records import Refused
from smelt.export.registry import converter

Value = ir.Value


@converter("aten::copysign.Tensor", "aten::copysign.Scalar")
def copysign(call: Call, self: Value, other: Any) -> Value:
    size, sign = call.op("Abs", call.cast(self)), call.cast(other)
    # 1/-0 is -infinity, which tells the sign of zeros.
    negative = call.op(
        "Or", call.op("Less", sign, call.scalar(0.0)), call.op("Less", call.op("Reciprocal", sign), call.scalar(0.0))
    )
    return call.op("Where", negative, call.op("Neg", size), size)


@converter("aten::ldexp.Tensor")
def ldexp(call: Call, self: Value, other: Value) -> Value:
    power = call.op("Pow", call.scalar(2.0, DOUBLE), call.cast(other, DOUBLE))
    return call.cast(call.op("Mul", call.cast(self, DOUBLE), power))


@converter("aten::frexp.Tensor")
def frexp(call: Call, self: Value) -> list[Value]:
    """A fraction in [0.5, 1) and a power of two."""
    if self.dtype == DOUBLE:
        raise Refused("the exponent of a float64 cannot be found by float64 arithmetic")
    x = call.cast(self, DOUBLE)
    size = call.op("Abs", x)
    special = call.op(
        "Or", call.op("Equal", size, call.scalar(0.0, DOUBLE)), call.op("Or", call.op("IsNaN", x), call.op("IsInf", x))
    )
    safe = call.op("Where", special, call.scalar(0.5, DOUBLE), size)
    guess = call.op("Floor", call.op("Div", call.op("Log", safe), call.scalar(math.log(2.0), DOUBLE)))
    exponent = call.op("Add", guess, call.scalar(1.0, DOUBLE))
    two, one, half = (call.scalar(v, DOUBLE) for v in (2.0, 1.0, 0.5))
    fraction = call.op("Div", safe, call.op("Pow", two, exponent))
    # The logarithm of a power of two may fall on either side of a whole number.
    high = call.op("GreaterOrEqual", fraction, one)
    low = call.op("Less", fraction, half)
    exponent = call.op("Add", exponent, call.op("Sub", call.cast(high, DOUBLE), call.cast(low, DOUBLE)))
    fraction = call.op("Mul", call.op("Div", safe, call.op("Pow", two, exponent)), call.op("Sign", x))
    kept = call.op("Where", special, x, fraction)
    power = call.op("Where", special, call.scalar(0.0, DOUBLE), exponent)
    return [call.cast(kept, self.dtype), call.cast(power, ir.DataType.INT32)]


@converter("aten::gcd")
def gcd(call: Call, self: Value, other: Value) -> Value:
    """By Euclid; 64-bit numbers need at most 92 rounds."""
    return _gcd(call, *(call.op("Abs", call.expand(call.cast(v, INT64), call.dims)) for v in (self, other)))


def _gcd(call: Call, left: Value, right: Value) -> Value:
    one, zero = call.constant(1, INT64), call.constant(0, INT64)

    def body(_: Value, a: Value, b: Value) -> list[Value]:
        done = call.op("Equal", b, zero)
        rest = call.op("Mod", a, call.op("Where", done, one, b))
        return [call.op("Where", done, a, b), call.op("Where", done, b, rest)]

    return repeated(call, call.constant(92, INT64), [left, right], body)[0]


@converter("aten::lcm")
def lcm(call: Call, self: Value, other: Value) -> Value:
    a, b = (call.op("Abs", call.expand(call.cast(v, INT64), call.dims)) for v in (self, other))
    divisor = _gcd(call, a, b)
    zero = call.constant(0, INT64)
    none = call.op("Equal", divisor, zero)
    share = call.op("Div", a, call.op("Where", none, call.constant(1, INT64), divisor))
    return call.op("Where", none, zero, call.op("Mul", share, b))


@converter("aten::heaviside")
def heaviside(call: Call, self: Value, values: Value) -> Value:
    x = call.cast(self)
    zero = call.scalar(0)
    step = call.cast(call.op("Greater", x, zero))
    return call.op("Where", call.op("Equal", x, zero), call.cast(values), step)


def _next(call: Call, x: Value, up: Value) -> Value:
    """The neighbour of a float32 held in double, in the direction that `up` tells."""
    size = call.op("Abs", x)
    tiny = call.scalar(2.0**-149, DOUBLE)
    safe = call.op("Max", size, call.scalar(2.0**-126, DOUBLE))
    exponent = call.op("Floor", call.op("Div", call.op("Log", safe), call.scalar(math.log(2.0), DOUBLE)))
    power = call.op("Pow", call.scalar(2.0, DOUBLE), exponent)
    # The logarithm may fall short of, or beyond, a whole number.
    power = call.op("Where", call.op("Greater", power, safe), call.op("Mul", power, call.scalar(0.5, DOUBLE)), power)
    double = call.op("Mul", power, call.scalar(2.0, DOUBLE))
    power = call.op("Where", call.op("LessOrEqual", double, safe), double, power)
    gap = call.op("Max", call.op("Mul", power, call.scalar(2.0**-23, DOUBLE)), tiny)
    outward = call.op("Equal", up, call.op("GreaterOrEqual", x, call.scalar(0.0, DOUBLE)))
    edge = call.op("And", call.op("Equal", size, power), call.op("Greater", size, call.scalar(2.0**-126, DOUBLE)))
    inner = call.op("Where", edge, call.op("Mul", gap, call.scalar(0.5, DOUBLE)), gap)
    step = call.op("Where", outward, gap, inner)
    return call.op("Where", up, call.op("Add", x, step), call.op("Sub", x, step))


@converter("aten::nextafter")
def nextafter(call: Call, self: Value, other: Value) -> Value:
    if call.dtype != FLOAT:
        raise Refused("nextafter of other types than float32")
    x, goal = call.cast(call.cast(self), DOUBLE), call.cast(call.cast(other), DOUBLE)
    moved = _next(call, x, call.op("Greater", goal, x))
    largest, infinite = call.scalar(3.4028234663852886e38, DOUBLE), call.op("IsInf", x)
    moved = call.op("Where", infinite, call.op("Mul", call.op("Sign", x), largest), moved)
    unknown = call.op("Or", call.op("IsNaN", x), call.op("IsNaN", goal))
    same = call.op("Where", call.op("Equal", x, goal), goal, moved)
    return call.cast(call.op("Where", unknown, call.scalar(math.nan, DOUBLE), same))
