"""Register epilogues: bias, addend and limits that GEMMs and convolutions apply before the only store.

Input: what is stored. Output: a `RegisterEpilogue`, or None where the epilogue is anything else. Invariant: the result
is min(max(sum + bias + added, least), most) in that order of rounding, and NaN stays NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from smelt.codegen.cluster import Store
from smelt.ir.kernel import Buffer, Expr, Ix, Var, of
from smelt.ir.kernel import expr as E


@dataclass(frozen=True)
class RegisterEpilogue:
    """`bias` has an element for each column; `added` lies like the result `to`."""

    to: Buffer
    bias: Buffer
    added: Buffer | None
    least: float
    most: float


def find_register_epilogue(store: Store, columns: Ix, column: Var) -> RegisterEpilogue | None:
    """`column` counts the result's last axis, of `columns` elements."""
    value, most = _limited(store.value, "min", math.inf)
    value, least = _limited(value, "max", -math.inf)
    added = _other(value, store.offset)
    if added is not None:
        value, there = added
        if there.elements != store.buffer.elements:
            return None
    found = _other(value, of(column))
    if found is None or not isinstance(found[0].kind, E.Ref) or found[1].elements != columns:
        return None
    return RegisterEpilogue(store.buffer, found[1], added[1] if added is not None else None, least, most)


def _limited(value: Expr, name: str, unlimited: float) -> tuple[Expr, float]:
    kind = value.kind
    if not isinstance(kind, E.Op) or kind.name != name or value.dtype != "f32":
        return value, unlimited
    bound = kind.args[1].kind
    if not isinstance(bound, E.Const) or math.isnan(bound.value):
        return value, unlimited
    return kind.args[0], float(bound.value)


def _other(value: Expr, offset: Ix) -> tuple[Expr, Buffer] | None:
    """The other side of a sum with what lies at `offset` of a buffer."""
    kind = value.kind
    if not isinstance(kind, E.Op) or kind.name != "add" or value.dtype != "f32":
        return None
    for one, other in (kind.args, kind.args[::-1]):
        load = other.kind
        if isinstance(load, E.Load) and load.offset == offset and load.buffer.dtype == "f32":
            return one, load.buffer
    return None
