"""The gamma function's logarithm and derivatives, and the zeta function.

Input: `aten::lgamma`, `aten::digamma`, `aten::polygamma`, `aten::special_zeta`. Output: values computed in double
between casts. Invariant: the argument is shifted up until an asymptotic series holds; negative arguments go through the
reflection formulas. Double results are refused, as in `special_functions`.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from smelt.export.aten.special_functions import Real, real
from smelt.export.call import Call
from smelt.export.dtypes import DOUBLE
from smelt.export.records import Refused
from smelt.export.registry import converter

Value = ir.Value
SHIFT = 10
MOST_STEPS = 1 << 16
# B(2k) for k = 1, 2, ...
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)


def _number(call: Call, number: float) -> Real:
    return Real(call, call.constant(number, DOUBLE))


def _series(inverse_square: Real, terms: list[float]) -> Real:
    """terms[0] + terms[1] / x^2 + ..."""
    result = inverse_square * terms[-1] + terms[-2]
    for term in reversed(terms[:-2]):
        result = result * inverse_square + term
    return result


def _log_gamma(x: Real) -> Real:
    """For x > 0: Stirling's series at x + SHIFT, less the logarithm of x (x+1) ... (x+SHIFT-1)."""
    product = x
    for step in range(1, SHIFT):
        product = product * (x + step)
    y = x + SHIFT
    terms = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(BERNOULLI, 1)]
    tail = _series(1.0 / (y * y), terms) / y
    return (y - 0.5) * y.of("Log") - y + (math.log(2 * math.pi) / 2) + tail - product.of("Log")


def _large_log_gamma(x: Real) -> Real:
    """For x >= 10, where the product of the shifted arguments could overflow."""
    terms = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(BERNOULLI, 1)]
    return (x - 0.5) * x.of("Log") - x + (math.log(2 * math.pi) / 2) + _series(1.0 / (x * x), terms) / x


@converter("aten::lgamma")
def lgamma(call: Call) -> Value:
    x = real(call)
    up = (1.0 - x).where(x < 0.5, x)
    positive = _log_gamma(up.at_most(SHIFT)).where(up < SHIFT, _large_log_gamma(up.at_least(SHIFT)))
    sine = _sine_of_pi(x).of("Abs")
    reflected = math.log(math.pi) - sine.of("Log") - positive
    result = reflected.where(x < 0.5, positive)
    infinite = _number(call, math.inf)
    size = x.of("Abs")
    unbounded = infinite.where(size.same(math.inf), result)
    pole = call.op("And", x < 0.5, x.of("Floor").same(x))
    return infinite.where(pole, unbounded).value


def _sine_of_pi(x: Real) -> Real:
    """sin(pi x), with the whole part taken off first so that zeros are exact."""
    rest = x - x.of("Floor")
    return (rest * math.pi).of("Sin")


def _digamma(x: Real) -> Real:
    """For x > 0."""
    shifted = 1.0 / x
    for step in range(1, SHIFT):
        shifted = shifted + 1.0 / (x + step)
    y = x + SHIFT
    inverse = 1.0 / (y * y)
    tail = _series(inverse, [b / (2 * k) for k, b in enumerate(BERNOULLI, 1)]) * inverse
    return y.of("Log") - 0.5 / y - tail - shifted


@converter("aten::digamma", "aten::special_psi")
def digamma(call: Call) -> Value:
    x = real(call)
    up = (1.0 - x).where(x < 0.0, x)
    positive = _digamma(up)
    rest = (x - x.of("Floor")) * math.pi
    reflected = positive - math.pi * rest.of("Cos") / rest.of("Sin")
    whole = call.op("And", x < 0.0, x.of("Floor").same(x))
    result = _number(call, math.nan).where(whole, reflected.where(x < 0.0, positive))
    return _signed_pole(x, result).value


def _signed_pole(x: Real, result: Real) -> Real:
    """At a zero, the infinity of the opposite sign."""
    return (-1.0 / x).where(x.same(0.0), result)


def _power(x: Real, exponent: Real) -> Real:
    return Real(x.call, x.call.op("Pow", x.value, exponent.value))


def _zeta(s: Real, q: Real) -> Real:
    """Hurwitz zeta for s > 1 by Euler and Maclaurin: whole terms until the argument is above SHIFT, then a series."""
    call, minus = q.call, 0.0 - s
    steps = _steps(call, q)
    terms = call.op("Range", call.constant(0.0, DOUBLE), steps.value, call.constant(1.0, DOUBLE))
    last = [-1]
    shifted = call.op("Add", call.op("Unsqueeze", q.value, last), terms)
    powers = call.op("Pow", shifted, call.op("Unsqueeze", minus.value, last))
    total = Real(call, call.op("ReduceSum", powers, last, keepdims=0))
    y = q + steps
    at_y = _power(y, minus)
    total = total + at_y * y / (s - 1.0) + at_y * 0.5
    factor = s * at_y / y
    for k, b in enumerate(BERNOULLI, 1):
        total = total + factor * (b / math.factorial(2 * k))
        factor = factor * (s + (2 * k - 1)) * (s + 2 * k) / (y * y)
    return total


def _steps(call: Call, q: Real) -> Real:
    """How many whole terms the smallest argument needs."""
    lowest = Real(call, call.op("ReduceMin", q.value, keepdims=0))
    return (SHIFT - lowest.of("Floor")).at_least(SHIFT).at_most(MOST_STEPS)


@converter("aten::special_zeta", "aten::special_zeta.self_scalar", "aten::special_zeta.other_scalar")
def zeta(call: Call) -> Value:
    s, q = real(call), real(call, "other")
    inside = _zeta(s, q)
    infinite, nowhere = _number(call, math.inf), _number(call, math.nan)
    result = infinite.where(s.same(1.0), nowhere.where(s < 1.0, inside))
    pole = call.op("And", q.of("Floor").same(q), call.op("Not", q > 0.0))
    fraction = call.op("And", q < 0.0, call.op("Not", s.of("Floor").same(s)))
    beyond = nowhere.where(fraction, infinite.where(pole, result))
    return infinite.where(s.same(1.0), nowhere.where(s < 1.0, beyond)).value


@converter("aten::polygamma")
def polygamma(call: Call) -> Value:
    n = call.arguments["n"]
    if not isinstance(n, int):
        raise Refused("the order of polygamma is not known when the model is translated")
    if n == 0:
        return digamma(call)
    x = real(call)
    factor = (-1.0) ** (n + 1) * math.factorial(n)
    return (_zeta(_number(call, float(n + 1)), x) * factor).value
