"""Block sizes and numbers of tasks as they follow from a machine: the formulas of `machine_sizes.h`.

Input: a `Machine`. Output: sizes by name. Invariant: the C side computes the same from the same file (`machine.h`).
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from smelt.base.errors import CodegenError
from smelt.base.machine import REFERENCE, Machine

FORMULAS: Final = Path(__file__).parent / "c" / "include" / "smelt" / "base" / "machine_sizes.h"
_LINE: Final = re.compile(r'^SMELT_SIZE\((\w+), (.+), "[^"]*"\)$', re.MULTILINE)
_OPERATORS: Final[dict[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv,
}  # fmt: skip
_FUNCTIONS: Final[dict[str, Callable[..., int]]] = {"smelt_max": max, "smelt_min": min}
_RANGES: Final = {"l1_bytes": (16 << 10, 128 << 10), "l2_bytes": (256 << 10, 4 << 20), "threads": (1, 128)}


@cache
def machine_sizes(machine: Machine = REFERENCE) -> Mapping[str, int]:
    """As a library on this machine has them."""
    known = {name: min(max(getattr(machine, name), low), high) for name, (low, high) in _RANGES.items()}
    known |= {name: 1 << (known[name].bit_length() - 1) for name in ("l1_bytes", "l2_bytes")}
    return {name: _value(ast.parse(formula, mode="eval").body, known) for name, formula in formulas().items()}


@cache
def most_of(name: str) -> int:
    """What a size is on the largest machine that is told apart: memory that is planned ahead holds it everywhere."""
    largest = {field: high for field, (_, high) in _RANGES.items()}
    return machine_sizes(REFERENCE.with_(**largest))[name]


@cache
def formulas() -> Mapping[str, str]:
    return dict(_LINE.findall(FORMULAS.read_text(encoding="utf-8")))


def _value(node: ast.expr, known: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name) if name in known:
            return known[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, known), _value(right, known))
        case ast.Call(func=ast.Name(id=name), args=args) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(one, known) for one in args))
        case _:
            raise CodegenError(
                "SM-CODEGEN-002", f"{ast.unparse(node)!r} in machine_sizes.h", hint=f"Known are {', '.join(known)}."
            )
