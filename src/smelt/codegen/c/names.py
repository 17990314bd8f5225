"""C spelling of types, constants and integer expressions. No string of a model is ever spelled here.

Input: dtypes, numbers, `Ix`. Output: C text. Invariant: integer text is exact for the values that a checked region
can have (sizes fit 63 bits).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from smelt.base.dtype import BY_NAME, KERNEL_DTYPES
from smelt.ir.kernel import Ix, Sym, Val, Var
from smelt.ir.kernel.index import Atom, Fn, nonneg

from .scope import Scope

C_TYPE = {dtype.name: dtype.c for dtype in KERNEL_DTYPES}


def accumulator_name(place: int) -> str:
    """The current row of a nest's product number `place`."""
    return f"acc{place}" if place else "acc"


def constant(value: float | int | bool, dtype: str) -> str:
    if BY_NAME[dtype].kind == "float":
        return _float(float(value), "" if dtype == "f64" else "f")
    number = int(value)
    if dtype == "u64":
        return f"UINT64_C({number})"
    if number == -(2**63):
        return "INT64_MIN"
    return f"INT64_C({number})" if dtype == "i64" else str(number) if number != -(2**31) else "INT32_MIN"


def _float(value: float, suffix: str) -> str:
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
    if suffix and abs(value) > 3.5e38:
        return f"{'-' if value < 0 else ''}__builtin_inff()"
    return f"{value.hex()}{suffix}"


class Integers:
    """Spells `Ix`. Names of symbols and variables come from the writer; data indices from the open scopes."""

    def __init__(self, symbol: Callable[[Sym], str], var: Callable[[Var], str]) -> None:
        self._symbol = symbol
        self._var = var

    def text(self, value: Ix, scopes: Sequence[Scope] = (), lanes: Mapping[str, str] | None = None) -> str:
        if not value.terms:
            return "0"
        parts: list[str] = []
        for monomial, scale in reversed(value.terms):
            factors = [self._atom(a, scopes, lanes or {}) for a in monomial]
            if scale != 1 or not factors:
                factors.append(str(scale))
            parts.append(" * ".join(factors))
        return " + ".join(parts)

    def _atom(self, atom: Atom, scopes: Sequence[Scope], lanes: Mapping[str, str]) -> str:
        if isinstance(atom, Sym):
            return self._symbol(atom)
        if isinstance(atom, Var):
            return self._var(atom)
        if isinstance(atom, Val):
            if atom.key in lanes:
                return lanes[atom.key]
            return next(s.integers[atom.key] for s in reversed(scopes) if atom.key in s.integers)
        return self._function(atom, [f"({self.text(a, scopes, lanes)})" for a in atom.args])

    def _function(self, atom: Fn, args: list[str]) -> str:
        if atom.op in ("floordiv", "mod") and nonneg(atom.args[0]) and (atom.args[1].const or 0) > 0:
            return f"({args[0]} {'/' if atom.op == 'floordiv' else '%'} {args[1]})"
        simple = {
            "ne1": lambda: f"({args[0]} != 1)",
            "eq": lambda: f"({args[0]} == {args[1]})",
            "lt": lambda: f"({args[0]} < {args[1]})",
            "sel": lambda: f"({args[0]} ? {args[1]} : {args[2]})",
        }
        if atom.op in simple:
            return simple[atom.op]()
        return f"smelt_{atom.op}({', '.join(args)})"
