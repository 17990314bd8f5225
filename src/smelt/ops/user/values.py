"""Arithmetic of C over tensors: what the expressions of a user's function are evaluated with.

Input: numbers of the text, and tensors. Output: the same. Invariant: types follow C (bool, int, int64_t, then the
floating type of the kernel, which is the tensors' own); fmax and fmin ignore NaN as C's do; no number is rounded here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from smelt.ir.kernel import Builder, Expr, Tensor
from smelt.ir.kernel import expr as E

Number = bool | int | float
Value = Tensor | Number

CONSTANTS: Final[dict[str, float]] = {
    "INFINITY": math.inf, "NAN": math.nan, "M_PI": math.pi, "M_E": math.e, "M_LN2": math.log(2.0),
    "M_SQRT2": math.sqrt(2.0), "M_SQRT1_2": math.sqrt(0.5), "FLT_MAX": 3.4028234663852886e38,
    "FLT_MIN": 1.1754943508222875e-38, "FLT_EPSILON": 1.1920928955078125e-07,
}  # fmt: skip
_UNARY: Final = {
    "exp": "exp", "expm1": "expm1", "log": "log", "log1p": "log1p", "sqrt": "sqrt", "sin": "sin", "cos": "cos",
    "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh",
    "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "erf": "erf", "fabs": "abs", "floor": "floor",
    "ceil": "ceil", "trunc": "trunc", "rint": "round", "nearbyint": "round",
}  # fmt: skip
_TESTS: Final = {"isnan": "isnan", "isinf": "isinf"}
_ARITHMETIC: Final = {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "fmod"}
_COMPARISONS: Final = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
_BITS: Final = {"&": "band", "|": "bor", "^": "bxor", "<<": "shl", ">>": "shr"}
_RANK: Final = ("b", "i8", "u8", "i32", "i64", "f32", "f64")


class UnknownError(Exception):
    """Something of C that has no counterpart here; the text says what."""


class Arithmetic:
    """Operators and functions for one kernel, whose floating type is `dtype`."""

    def __init__(self, k: Builder, dtype: str) -> None:
        self.k, self.dtype = k, dtype

    def typed(self, value: Value, dtype: str) -> Tensor:
        if isinstance(value, Tensor):
            return self._cast(value, dtype)
        return self.k.const(value, dtype)

    def dtype_of(self, value: Value) -> str:
        if isinstance(value, Tensor):
            return value.dtype
        return "b" if isinstance(value, bool) else "i32" if isinstance(value, int) else self.dtype

    def cast(self, value: Value, dtype: str) -> Value:
        """As C does it: floats are truncated, and anything but zero is true."""
        if isinstance(value, Tensor):
            return self._cast(value, dtype)
        if dtype == "b":
            return bool(value)
        return float(value) if dtype in E.FLOATS else int(value)

    def unary(self, operator: str, value: Value) -> Value:
        if operator == "+":
            return value
        if operator == "-":
            return self._map("neg", value) if isinstance(value, Tensor) else -value
        if operator == "!":
            return self._not(value)
        raise UnknownError(f"the operator {operator}")

    def binary(self, operator: str, a: Value, b: Value) -> Value:
        if operator in ("&&", "||"):
            return self._map("and" if operator == "&&" else "or", self._truth(a), self._truth(b))
        if not isinstance(a, Tensor) and not isinstance(b, Tensor):
            return _number(operator, a, b)
        common = self._common(a, b)
        if operator in _COMPARISONS:
            return self._map(_COMPARISONS[operator], self.typed(a, common), self.typed(b, common))
        name = _ARITHMETIC.get(operator) or (_BITS.get(operator) if common not in E.FLOATS else None)
        if name is None:
            raise UnknownError(f"the operator {operator} of {common}")
        return self._map(name, self.typed(a, common), self.typed(b, common))

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        if not isinstance(condition, Tensor):
            return yes if condition else no
        common = self._common(yes, no)
        truth = self._truth(condition)
        return self.k.map(E.select, truth, self.typed(yes, common), self.typed(no, common))

    def call(self, name: str, given: list[Value]) -> Value | None:
        """A function of math.h, with or without the f of float; None for any other."""
        plain = name[:-1] if name.endswith("f") and (name[:-1] in _UNARY or name[:-1] in _BINARY) else name
        if plain in _TESTS and len(given) == 1:
            return self._map(_TESTS[plain], self.typed(given[0], self.dtype))
        if plain in _UNARY and len(given) == 1:
            return self._map(_UNARY[plain], self.typed(given[0], self.dtype))
        if plain in _BINARY and len(given) == 2:
            body = _BINARY[plain]
            return self.k.map(body, *(self.typed(value, self.dtype) for value in given))
        if plain == "fma" and len(given) == 3:
            return self.binary("+", self.binary("*", given[0], given[1]), given[2])
        return None

    def _not(self, value: Value) -> Value:
        return self._map("not", self._truth(value)) if isinstance(value, Tensor) else not value

    def _truth(self, value: Value) -> Tensor:
        return self.typed(self.cast(value, "b"), "b")

    def _cast(self, value: Tensor, dtype: str) -> Tensor:
        if dtype == "b" and value.dtype != "b":
            zero = self.k.const(0, value.dtype)
            return self.k.map(lambda e, z: E.op("ne", e, z), value, zero)
        return self.k.cast(value, dtype)

    def _common(self, a: Value, b: Value) -> str:
        kinds = [self.dtype_of(a), self.dtype_of(b)]
        floats = [kind for kind in kinds if kind in E.FLOATS]
        if floats:
            return self.dtype
        return max("i32", *kinds, key=_RANK.index)

    def _map(self, name: str, *values: Value) -> Tensor:
        given = [value if isinstance(value, Tensor) else self.typed(value, self.dtype) for value in values]
        return self.k.map(lambda *args: E.op(name, *args), *given)


def _fmax(a: Expr, b: Expr) -> Expr:
    return E.select(E.op("isnan", a), b, E.select(E.op("isnan", b), a, E.op("max", a, b)))


def _fmin(a: Expr, b: Expr) -> Expr:
    return E.select(E.op("isnan", a), b, E.select(E.op("isnan", b), a, E.op("min", a, b)))


_BINARY: Final[dict[str, Callable[[Expr, Expr], Expr]]] = {
    "fmax": _fmax,
    "fmin": _fmin,
    "pow": lambda a, b: E.op("pow", a, b),
    "fmod": lambda a, b: E.op("fmod", a, b),
}


def _number(operator: str, a: Number, b: Number) -> Number:
    """Of two numbers of the text."""
    if operator in _COMPARISONS:
        return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b}[operator]
    if operator in ("+", "-", "*"):
        return {"+": a + b, "-": a - b, "*": a * b}[operator]
    if operator == "/" and (isinstance(a, float) or isinstance(b, float)):
        return a / b if b else math.copysign(math.inf, a) if a else math.nan
    if operator in ("/", "%") and not b:
        raise UnknownError("a division by the number 0")
    if operator == "/":
        return int(a / b)
    if operator == "%" and isinstance(a, int) and isinstance(b, int):
        return int(math.fmod(a, b))
    raise UnknownError(f"the operator {operator} of two numbers")
