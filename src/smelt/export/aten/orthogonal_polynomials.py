"""Orthogonal polynomials of a degree that is data.

Input: `aten::special_chebyshev_polynomial_t` and kin. Output: the value of each polynomial. Invariant: three-term
recurrences in double, repeated as often as the highest degree asks; a negative degree gives zero, as in torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir

from smelt.export.aten.repetition import repeated
from smelt.export.aten.special_functions import Real, real
from smelt.export.call import Call
from smelt.export.dtypes import DOUBLE, INT64
from smelt.export.registry import converter

Value = ir.Value
Step = Callable[[Real, Real, Real, Real], Real]
"""(x, k, p[k], p[k-1]) -> p[k+1]"""


def _chebyshev(x: Real, _k: Real, p: Real, before: Real) -> Real:
    return x * 2.0 * p - before


def _hermite(x: Real, k: Real, p: Real, before: Real) -> Real:
    return (x * p - k * before) * 2.0


def _probabilist(x: Real, k: Real, p: Real, before: Real) -> Real:
    return x * p - k * before


def _laguerre(x: Real, k: Real, p: Real, before: Real) -> Real:
    return ((k * 2.0 + 1.0 - x) * p - k * before) / (k + 1.0)


def _legendre(x: Real, k: Real, p: Real, before: Real) -> Real:
    return ((k * 2.0 + 1.0) * x * p - k * before) / (k + 1.0)


# Name -> (p[1] of x, the step).
_FAMILIES: dict[str, tuple[Callable[[Real], Real], Step]] = {
    "chebyshev_polynomial_t": (lambda x: x, _chebyshev),
    "chebyshev_polynomial_u": (lambda x: x * 2.0, _chebyshev),
    "chebyshev_polynomial_v": (lambda x: x * 2.0 - 1.0, _chebyshev),
    "chebyshev_polynomial_w": (lambda x: x * 2.0 + 1.0, _chebyshev),
    "hermite_polynomial_h": (lambda x: x * 2.0, _hermite),
    "hermite_polynomial_he": (lambda x: x, _probabilist),
    "laguerre_polynomial_l": (lambda x: 1.0 - x, _laguerre),
    "legendre_polynomial_p": (lambda x: x, _legendre),
}
_HIGHEST_HERMITE = 128


def _converter(name: str, shifted: bool) -> Callable[[Call], Value]:
    first, step = _FAMILIES[name]

    def convert(call: Call) -> Value:
        x, degree = real(call, "x"), real(call, "n")
        if shifted:
            x = x * 2.0 - 1.0
        x = Real(call, call.expand(x.value, call.dims))
        degree = Real(call, call.expand(call.cast(call.cast(degree.value, INT64), DOUBLE), call.dims))
        result = _evaluated(call, x, degree, first, step)
        if name.startswith("hermite"):
            result = Real(call, call.constant(math.nan, DOUBLE)).where(degree > _HIGHEST_HERMITE, result)
        return result.value

    return convert


def _evaluated(call: Call, x: Real, degree: Real, first: Callable[[Real], Real], step: Step) -> Real:
    one = Real(call, call.filled(call.dims, 1.0, DOUBLE))
    highest = call.op("ReduceMax", degree.value, keepdims=0)
    rounds = call.op("Max", call.op("Sub", call.cast(highest, INT64), 1), 0)

    def body(number: Value, p: Value, before: Value) -> list[Value]:
        k = Real(call, call.cast(number, DOUBLE)) + 1.0
        current, previous = Real(call, p), Real(call, before)
        done = k > degree - 0.5  # p[degree] was reached
        return [current.where(done, step(x, k, current, previous)).value, previous.where(done, current).value]

    last = Real(call, repeated(call, rounds, [first(x).value, one.value], body)[0])
    zero = Real(call, call.constant(0.0, DOUBLE))
    return zero.where(degree < 0.0, one.where(degree.same(0.0), last))


for _name in _FAMILIES:
    for _suffix in ("", ".x_scalar", ".n_scalar"):
        converter(f"aten::special_{_name}{_suffix}")(_converter(_name, shifted=False))
        if _name.startswith("chebyshev"):
            converter(f"aten::special_shifted_{_name}{_suffix}")(_converter(_name, shifted=True))
