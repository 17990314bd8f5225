"""Spelling of reductions: how accumulators start, combine and become one value.

Input: a reduction's kind and dtype. Output: names of vec.h and constants. Invariant: the starting value leaves the
other operand unchanged, so that padding lanes and empty rows are right.
"""

from __future__ import annotations

from smelt.codegen.cluster import Reduction
from smelt.ir.kernel import expr as E

from .names import constant

_COMBINE = {"sum": "add", "prod": "mul", "min": "min", "max": "max", "top": "max"}


def combine_name(kind: str, dtype: str) -> str:
    if kind.startswith("arg"):
        return ""
    if dtype == "b":
        return "and_b" if kind in ("min", "prod") else "or_b"
    if kind == "top" and dtype == "f32":
        return "second_max_f32"
    return f"{_COMBINE[kind]}_{dtype}"


def horizontal_name(kind: str, dtype: str) -> str:
    if dtype == "b":
        return "hand_b" if kind in ("min", "prod") else "hor_b"
    return f"h{'max' if kind == 'top' and dtype != 'f32' else kind}_{dtype}"


def identity(kind: str, dtype: str) -> str:
    """The element that leaves the other operand unchanged."""
    if dtype == "b":
        return "1" if kind in ("min", "prod") else "0"
    if kind in ("sum", "prod"):
        return constant(0 if kind == "sum" else 1, dtype)
    low = kind.endswith(("max", "max_last", "top"))
    if dtype in E.FLOATS:
        return constant(float("-inf") if low else float("inf"), dtype)
    bits = E.SIZE_BYTES[dtype] * 8
    if dtype in E.UNSIGNED:
        return constant(0 if low else 2**bits - 1, dtype)
    return constant(-(2 ** (bits - 1)) if low else 2 ** (bits - 1) - 1, dtype)


def declare_accumulator(reduction: Reduction, name: str) -> list[str]:
    dtype = reduction.value.dtype
    lines = [f"v_{dtype} {name} = bc_{dtype}({identity(reduction.kind, dtype)});"]
    if reduction.kind.startswith("arg"):
        lines.append(f"v_i64 {name}_at = bc_i64(-1);")
    return lines
