"""The expression vocabulary in numpy: what each scalar operation means, elementwise over arrays.

Input: arrays of one dtype of the vocabulary. Output: an array of the result's dtype. Invariant: every input has a
defined result, the one that the C headers give: integers wrap, a zero divisor gives 0, NaN goes through min and max.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from smelt.base.dtype import KERNEL_DTYPES

Array = npt.NDArray[Any]

DTYPE: dict[str, np.dtype[Any]] = {d.name: d.numpy for d in KERNEL_DTYPES if d.numpy is not None}


def convert(x: Array, to: np.dtype[Any]) -> Array:
    """Between any two dtypes; float to integer truncates, and what does not fit is x86's answer."""
    if x.dtype.kind != "f" or to.kind in "fbV":  # V: bfloat16
        return x != 0 if to.kind == "b" else x.astype(to)
    if to.itemsize == 8 or to == np.uint32:
        return _to_64(x, to)
    return _truncated(x, np.dtype(np.int32)).astype(to)


def _to_64(x: Array, to: np.dtype[Any]) -> Array:
    if to != np.uint64:
        return _truncated(x, np.dtype(np.int64)).astype(to)
    high = x >= 2.0**63
    low = _truncated(np.where(high, x - 2.0**63, x), np.dtype(np.int64)).astype(np.uint64)
    return np.where(high, low ^ np.uint64(1 << 63), low)


def _truncated(x: Array, to: np.dtype[Any]) -> Array:
    edge = 2.0 ** (8 * to.itemsize - 1)
    whole = np.trunc(x.astype(np.float64))
    fits = (whole >= -edge) & (whole < edge)
    return np.where(fits, np.where(fits, whole, 0.0).astype(to), np.iinfo(to).min)


def _int_divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "u":
        return np.where(b == 0, 0, a // np.where(b == 0, 1, b)).astype(a.dtype)
    safe = np.where((b == 0) | (b == -1), 1, b).astype(a.dtype)
    floor, rest = a // safe, a % safe
    quotient = floor + ((rest != 0) & ((a < 0) != (safe < 0))).astype(a.dtype)
    return np.where(b == 0, 0, np.where(b == -1, np.negative(a), quotient)).astype(a.dtype)


def divide(a: Array, b: Array) -> Array:
    return a / b if a.dtype.kind == "f" else _int_divide(a, b)


def _remainder(rule: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    def apply(a: Array, b: Array) -> Array:
        if a.dtype.kind == "f":
            return rule(a, b)
        none = (b == 0) | (b == -1) if a.dtype.kind == "i" else b == 0
        return np.where(none, 0, rule(a, np.where(none, 1, b).astype(a.dtype))).astype(a.dtype)

    return apply


def _shifted(rule: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    def apply(a: Array, b: Array) -> Array:
        width = 8 * a.dtype.itemsize
        fits = (b >= 0) & (b < width)
        return np.where(fits, rule(a, np.where(fits, b, 0).astype(a.dtype)), 0).astype(a.dtype)

    return apply


def power(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return _wide(np.power)(a, b)
    return _int_power(a, b)


def _int_power(a: Array, b: Array) -> Array:
    """Wrapping repeated multiplication; a negative exponent gives the truncated reciprocal."""
    base, left = np.broadcast_arrays(a, b)
    base, left, out = base.copy(), left.copy(), np.ones(base.shape, a.dtype)
    start, negative = base.copy(), left < 0
    left[negative] = 0
    while np.any(left):
        out = np.where(left & 1, out * base, out).astype(a.dtype)
        base, left = (base * base).astype(a.dtype), left >> 1
    if a.dtype.kind == "i" and np.any(negative):
        odd = np.where(b & 1, start, np.ones_like(start))
        out = np.where(negative, np.where(start == 1, 1, np.where(start == -1, odd, 0)), out).astype(a.dtype)
    return out


def _wide(rule: Callable[..., Array]) -> Callable[..., Array]:
    """A function computed in double and rounded once: what an accurate kernel comes close to."""

    def apply(*args: Array) -> Array:
        return np.asarray(rule(*(a.astype(np.float64) for a in args))).astype(args[0].dtype)

    return apply


_erf: Callable[..., Array] = np.frompyfunc(math.erf, 1, 1)


def _erf_array(x: Array) -> Array:
    return np.asarray(_erf(x)).astype(np.float64)


_erfc: Callable[..., Array] = np.frompyfunc(math.erfc, 1, 1)


def _gelu(x: Array) -> Array:
    return 0.5 * x * np.asarray(_erfc(-x * math.sqrt(0.5))).astype(np.float64)


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + small), small / (1.0 + small))


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def _nan_or(x: Array) -> Array:
    return np.where(np.isnan(x), x, np.sign(x)) if x.dtype.kind == "f" else np.sign(x)


def _absolute(x: Array) -> Array:
    return np.abs(x)


WIDE: dict[str, Callable[..., Array]] = {
    "exp": np.exp, "log": np.log, "erf": _erf_array, "gelu": _gelu, "tanh": np.tanh,
    "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "log1p": np.log1p, "expm1": np.expm1, "sigmoid": _sigmoid,
    "softplus": _softplus,
}  # fmt: skip

RULES: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": divide, "neg": np.negative, "abs": _absolute,
    "min": np.minimum, "max": np.maximum, "mod": _remainder(np.mod), "fmod": _remainder(np.fmod), "pow": power,
    "sqrt": np.sqrt, "recip": np.reciprocal, "sign": _nan_or, "floor": np.floor, "ceil": np.ceil, "round": np.rint,
    "trunc": np.trunc,
    "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor, "bnot": np.bitwise_not,
    "shl": _shifted(np.left_shift), "shr": _shifted(np.right_shift),
    "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor, "not": np.logical_not,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "isnan": np.isnan, "isinf": np.isinf, "isinf_pos": np.isposinf, "isinf_neg": np.isneginf,
    "sel": np.where,
    **{name: _wide(rule) for name, rule in WIDE.items()},
}  # fmt: skip
