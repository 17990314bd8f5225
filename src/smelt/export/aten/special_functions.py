"""Special functions that ONNX has no op for.

Input: `aten::special_*` and kin. Output: values computed in double between casts. Invariant: a smooth piece is a
polynomial that is fitted, when a model is translated, to torch's own float64 function at the Chebyshev points, so that
its error is far below that of float32; double results are refused, since a fit would not be as good as torch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from numpy.polynomial import chebyshev
from torch._subclasses.fake_tensor import unset_fake_temporarily

from smelt.export.call import Call
from smelt.export.dtypes import DOUBLE
from smelt.export.records import Refused
from smelt.export.registry import converter

Value = ir.Value
_SPECIAL: Any = torch.special  # torch states no types for it
_CHEBYSHEV: Any = chebyshev
Exact = Callable[[torch.Tensor], torch.Tensor]


class Real:
    """Arithmetic on double values of a call, written as formulas."""

    def __init__(self, call: Call, value: Value) -> None:
        self.call, self.value = call, value

    def _other(self, other: Any) -> Value:
        return other.value if isinstance(other, Real) else self.call.constant(float(other), DOUBLE)

    def _op(self, op_type: str, *operands: Any) -> Real:
        return Real(self.call, self.call.op(op_type, *operands))

    def __add__(self, other: Any) -> Real:
        return self._op("Add", self.value, self._other(other))

    def __sub__(self, other: Any) -> Real:
        return self._op("Sub", self.value, self._other(other))

    def __rsub__(self, other: Any) -> Real:
        return self._op("Sub", self._other(other), self.value)

    def __mul__(self, other: Any) -> Real:
        return self._op("Mul", self.value, self._other(other))

    def __truediv__(self, other: Any) -> Real:
        return self._op("Div", self.value, self._other(other))

    def __rtruediv__(self, other: Any) -> Real:
        return self._op("Div", self._other(other), self.value)

    __radd__, __rmul__ = __add__, __mul__

    def of(self, op_type: str) -> Real:
        """A function of one operand: Exp, Log, Sqrt, Abs, Sin, Cos, Floor, Neg."""
        return self._op(op_type, self.value)

    def __lt__(self, other: Any) -> Value:
        return self.call.op("Less", self.value, self._other(other))

    def __gt__(self, other: Any) -> Value:
        return self.call.op("Greater", self.value, self._other(other))

    def same(self, other: Any) -> Value:
        return self.call.op("Equal", self.value, self._other(other))

    def at_least(self, bound: float) -> Real:
        return self._op("Max", self.value, self._other(bound))

    def at_most(self, bound: float) -> Real:
        return self._op("Min", self.value, self._other(bound))

    def where(self, condition: Value, otherwise: Any) -> Real:
        """Itself where the condition holds."""
        return self._op("Where", condition, self.value, self._other(otherwise))


def real(call: Call, name: str = "self") -> Real:
    if call.dtype == DOUBLE:
        raise Refused("a float64 result would not be as accurate as torch's")
    value = call.arguments[name]
    return Real(call, call.cast(value, DOUBLE) if isinstance(value, ir.Value) else call.scalar(value, DOUBLE))


@lru_cache(maxsize=256)
def _coefficients(exact: Exact, low: float, high: float, degree: int) -> tuple[float, ...]:
    """Of powers of t in [-1, 1], highest first."""

    def sampled(t: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return exact(torch.from_numpy(low + (t + 1) * (high - low) / 2)).numpy()

    with unset_fake_temporarily():
        series = _CHEBYSHEV.chebinterpolate(sampled, degree)
    return tuple(float(c) for c in _CHEBYSHEV.cheb2poly(series)[::-1])


def fitted(x: Real, exact: Exact, low: float, high: float, degree: int) -> Real:
    """`exact` on [low, high]; constant outside, for the branch that is not taken."""
    t = ((x - (low + high) / 2) * (2 / (high - low))).at_least(-1.0).at_most(1.0)
    return polynomial(t, _coefficients(exact, low, high, degree))


def polynomial(t: Real, coefficients: Sequence[float]) -> Real:
    """By Horner's rule, highest power first."""
    result = t * coefficients[0] + coefficients[1]
    for coefficient in coefficients[2:]:
        result = result * t + coefficient
    return result


def _tail(exact: Exact, near: float) -> Exact:
    """A function of x as one of u = near / x; its limit at u = 0 is taken at a tiny u."""
    return lambda u: exact(near / u.clamp_min(1e-7))


# Modified Bessel functions of the first kind: exp(-|x|) I(x) in two pieces.

_I0E_NEAR: Exact = _SPECIAL.i0e
_I1E_NEAR: Exact = _SPECIAL.i1e
_I0E_FAR = _tail(lambda x: _SPECIAL.i0e(x) * x.sqrt(), 8.0)
_I1E_FAR = _tail(lambda x: _SPECIAL.i1e(x) * x.sqrt(), 8.0)


def _scaled_i(size: Real, near: Exact, far: Exact) -> Real:
    outer = size.at_least(8.0)
    tail = fitted(8.0 / outer, far, 0.0, 1.0, 18) / outer.of("Sqrt")
    return fitted(size, near, 0.0, 8.0, 28).where(size < 8.0, tail)


@converter("aten::special_i0e", "aten::i0", "aten::special_modified_bessel_i0")
def bessel_i0(call: Call) -> Value:
    size = real(call).of("Abs")
    scaled = _scaled_i(size, _I0E_NEAR, _I0E_FAR)
    return (scaled if call.name.endswith("i0e") else scaled * size.of("Exp")).value


@converter("aten::special_i1e", "aten::special_i1", "aten::special_modified_bessel_i1")
def bessel_i1(call: Call) -> Value:
    x = real(call)
    size = x.of("Abs")
    scaled = _scaled_i(size, _I1E_NEAR, _I1E_FAR)
    positive = scaled if call.name.endswith("i1e") else scaled * size.of("Exp")
    return positive.of("Neg").where(x < 0.0, positive).value


# Modified Bessel functions of the second kind: a logarithm near zero, exp(-x) / sqrt(x) far from it.

_K: dict[str, tuple[Exact, Exact]] = {
    "k0": (
        lambda x: _SPECIAL.modified_bessel_k0(x) + (x / 2).log() * _SPECIAL.modified_bessel_i0(x),
        _tail(lambda x: _SPECIAL.scaled_modified_bessel_k0(x) * x.sqrt(), 2.0),
    ),
    "k1": (
        lambda x: (_SPECIAL.modified_bessel_k1(x) - (x / 2).log() * _SPECIAL.modified_bessel_i1(x)) * x,
        _tail(lambda x: _SPECIAL.scaled_modified_bessel_k1(x) * x.sqrt(), 2.0),
    ),
}


def _above_zero(exact: Exact) -> Exact:
    return lambda x: exact(x.clamp_min(1e-9))


_K_NEAR = {name: _above_zero(near) for name, (near, _) in _K.items()}


@converter(
    "aten::special_modified_bessel_k0", "aten::special_modified_bessel_k1", "aten::special_scaled_modified_bessel_k0",
    "aten::special_scaled_modified_bessel_k1",
)  # fmt: skip
def bessel_k(call: Call) -> Value:
    kind = call.name[-2:]
    x = real(call, "self" if "self" in call.arguments else "x")
    inner, outer = x.at_least(1e-300).at_most(2.0), x.at_least(2.0)
    logarithm = (inner * 0.5).of("Log")
    if kind == "k0":
        near = fitted(inner, _K_NEAR[kind], 0.0, 2.0, 20) - logarithm * _unscaled_i(inner, _I0E_NEAR, _I0E_FAR)
    else:
        near = fitted(inner, _K_NEAR[kind], 0.0, 2.0, 20) / inner + logarithm * _unscaled_i(inner, _I1E_NEAR, _I1E_FAR)
    far = fitted(2.0 / outer, _K[kind][1], 0.0, 1.0, 24) / outer.of("Sqrt")
    if "scaled" in call.name:
        near = near * inner.of("Exp")
    else:
        far = far * outer.of("Neg").of("Exp")
    return _with_pole(x, near.where(x < 2.0, far), math.inf)


def _unscaled_i(size: Real, near: Exact, far: Exact) -> Real:
    return _scaled_i(size, near, far) * size.of("Exp")


def _with_pole(x: Real, inside: Real, at_zero: float) -> Value:
    """For x > 0; a pole at zero, undefined below."""
    call = x.call
    pole = Real(call, call.constant(at_zero, DOUBLE)).where(x.same(0.0), inside)
    return Real(call, call.constant(math.nan, DOUBLE)).where(x < 0.0, pole).value


# Bessel functions: a polynomial near zero, amplitude and phase far from it.


def _phase(x: torch.Tensor, order: int) -> torch.Tensor:
    return x - (2 * order + 1) * math.pi / 4


def _bessel(order: int) -> tuple[Exact, Exact]:
    special = _SPECIAL
    return (special.bessel_j0, special.bessel_y0) if order == 0 else (special.bessel_j1, special.bessel_y1)


@lru_cache(maxsize=8)
def _amplitudes(order: int) -> tuple[Exact, Exact]:
    j, y = _bessel(order)

    def even(x: torch.Tensor) -> torch.Tensor:
        c = _phase(x, order)
        return (math.pi * x / 2).sqrt() * (j(x) * c.cos() + y(x) * c.sin())

    def odd(x: torch.Tensor) -> torch.Tensor:
        c = _phase(x, order)
        return (math.pi * x / 2).sqrt() * (y(x) * c.cos() - j(x) * c.sin())

    return _bounded_tail(even), _bounded_tail(odd)


def _bounded_tail(exact: Exact) -> Exact:
    """As `_tail`, stopping where the phase of a huge argument loses its digits."""
    return lambda u: exact(8.0 / u.clamp_min(1e-4))


def _far(x: Real, order: int, second_kind: bool) -> Real:
    outer = x.at_least(8.0)
    even, odd = (fitted(8.0 / outer, exact, 0.0, 1.0, 16) for exact in _amplitudes(order))
    c = outer - (2 * order + 1) * math.pi / 4
    cos, sin = c.of("Cos"), c.of("Sin")
    flipped = even * sin + odd * cos if second_kind else even * cos - odd * sin
    return flipped * ((2 / math.pi) / outer).of("Sqrt")


@lru_cache(maxsize=8)
def _regular_y(order: int) -> Exact:
    j, y = _bessel(order)

    def exact(x: torch.Tensor) -> torch.Tensor:
        x = x.clamp_min(1e-6)
        regular = y(x) - 2 / math.pi * x.log() * j(x)
        return regular if order == 0 else (y(x) - 2 / math.pi * (x.log() * j(x) - 1 / x)) / x

    return exact


@converter("aten::special_bessel_j0", "aten::special_bessel_j1")
def bessel_j(call: Call) -> Value:
    order = int(call.name[-1])
    x = real(call)
    size = x.of("Abs")
    result = fitted(size, _bessel(order)[0], 0.0, 8.0, 28).where(size < 8.0, _far(size, order, second_kind=False))
    return (result.of("Neg").where(x < 0.0, result) if order else result).value


@converter("aten::special_bessel_y0", "aten::special_bessel_y1")
def bessel_y(call: Call) -> Value:
    order = int(call.name[-1])
    x = real(call)
    inner = x.at_least(1e-300).at_most(8.0)
    first = fitted(inner, _bessel(order)[0], 0.0, 8.0, 28) * inner.of("Log") * (2 / math.pi)
    near = fitted(inner, _regular_y(order), 0.0, 8.0, 28)
    near = near * inner + first - (2 / math.pi) / inner if order else near + first
    result = near.where(x < 8.0, _far(x, order, second_kind=True))
    return _with_pole(x, result, -math.inf)


@converter("aten::special_spherical_bessel_j0")
def spherical_bessel_j0(call: Call) -> Value:
    v = real(call, "x")
    return Real(call, call.constant(1.0, DOUBLE)).where(v.same(0.0), v.of("Sin") / v).value


# The error function and its kin.


@lru_cache(maxsize=1)
def _erfcx_of_u() -> Exact:
    """erfcx(x) * (1 + x) as a function of u = 4 / (4 + x), smooth up to infinity."""

    def exact(u: torch.Tensor) -> torch.Tensor:
        x = 4 / u.clamp_min(1e-7) - 4
        return _SPECIAL.erfcx(x) * (1 + x)

    return exact


def scaled_complement(size: Real) -> Real:
    """erfcx of a number that is not negative."""
    return fitted(4.0 / (size + 4.0), _erfcx_of_u(), 0.0, 1.0, 28) / (size + 1.0)


def complement(x: Real) -> Real:
    """erfc, accurate in both tails."""
    size = x.of("Abs")
    upper = scaled_complement(size) * (size * size).of("Neg").of("Exp")
    return (2.0 - upper).where(x < 0.0, upper)


@converter("aten::special_erfcx")
def erfcx(call: Call) -> Value:
    x = real(call)
    size = x.of("Abs")
    upper = scaled_complement(size)
    return ((size * size).of("Exp") * 2.0 - upper).where(x < 0.0, upper).value


@converter("aten::special_log_ndtr")
def log_ndtr(call: Call) -> Value:
    x = real(call)
    t = x * math.sqrt(0.5)
    size = t.of("Abs")
    left = (scaled_complement(size) * 0.5).of("Log") - size * size
    right = (1.0 - complement(size) * 0.5).of("Log")
    return left.where(x < 0.0, right).value


@lru_cache(maxsize=2)
def _erfinv_of(pieces: str) -> Exact:
    """erfinv(x) / x as a function of w = -log(1 - x^2), or of sqrt(w) in the tail."""

    def exact(t: torch.Tensor) -> torch.Tensor:
        w = t if pieces == "w" else t * t
        x = (-torch.expm1(-w)).sqrt()
        inner = torch.erfinv(x) / x
        # In the tail x rounds to 1: go through the normal quantile of the small probability instead.
        probability = -torch.expm1(-w) * 0 + (torch.exp(-w) / (1 + x)) / 2
        outer = -_SPECIAL.ndtri(probability) / math.sqrt(2.0) / x
        return torch.where(w < 1.0, inner, outer)

    return lambda t: exact(t.clamp_min(1e-9))


def _inverse_error(x: Real, product: Real) -> Real:
    """erfinv(x), given (1 - x)(1 + x)."""
    w = product.at_least(1e-300).of("Log").of("Neg").at_least(0.0)
    root = w.of("Sqrt")
    near = fitted(w, _erfinv_of("w"), 0.0, 6.0, 26)
    far = fitted(root, _erfinv_of("root"), math.sqrt(6.0), math.sqrt(120.0), 26)
    return x * near.where(w < 6.0, far)


@converter("aten::erfinv")
def erfinv(call: Call) -> Value:
    x = real(call)
    product = (1.0 - x) * (1.0 + x)
    return _poles(call, _inverse_error(x, product), x, product)


@converter("aten::special_ndtri")
def ndtri(call: Call) -> Value:
    p = real(call)
    product = p * (1.0 - p) * 4.0
    x = p * 2.0 - 1.0
    return _poles(call, _inverse_error(x, product) * math.sqrt(2.0), x, product)


def _poles(call: Call, inside: Real, x: Real, product: Real) -> Value:
    """Infinite where the product is zero, undefined where it is negative (or where x is no number)."""
    infinite = Real(call, call.constant(math.inf, DOUBLE))
    edge = (infinite.of("Neg")).where(x < 0.0, infinite)
    nowhere = Real(call, call.constant(math.nan, DOUBLE))
    return inside.where(product > 0.0, edge.where(product.same(0.0), nowhere)).value
