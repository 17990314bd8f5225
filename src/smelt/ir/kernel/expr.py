"""Scalar expressions: what one element of a tensor is.

Input: constants, loads, index values and other expressions. Output: `Expr`, shared by construction (the same
operation on the same operands is the same object). Invariant: an expression has no side effect; its dtype is one of
`DTYPES`, and `b` (bool) is a truth value, not a number.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from smelt.base.dtype import BY_NAME, KERNEL_DTYPES, kernel_names

from .index import Ix, Var

if TYPE_CHECKING:
    from .tensor import Buffer, Tensor

FLOATS = kernel_names(lambda d: d.kind == "float" and not d.is_narrow)
NARROW = kernel_names(lambda d: d.is_narrow)  # in memory, and in a register only between a load or store and a cast
SIGNED = kernel_names(lambda d: d.kind == "int")
UNSIGNED = kernel_names(lambda d: d.kind == "uint")
INTS = SIGNED + UNSIGNED
DTYPES = FLOATS + NARROW + INTS + ("b",)
SIZE_BYTES = {d.name: d.bytes for d in KERNEL_DTYPES}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isinf_pos", "isinf_neg")

# Rough cost in simple instructions, for scheduling only.
COST = {
    "exp": 12, "log": 14, "erf": 18, "gelu": 22, "tanh": 18, "sigmoid": 16, "sin": 18, "cos": 18, "tan": 24, "pow": 40,
    "asin": 16, "acos": 16, "atan": 16, "sinh": 20, "cosh": 20, "asinh": 24, "acosh": 24, "atanh": 20,
    "log1p": 16, "expm1": 16, "softplus": 28, "div": 4, "sqrt": 4, "mod": 8, "fmod": 10, "rounded": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Const:
    value: float | int | bool


@dataclass(frozen=True)
class Index:
    """The value of an index expression as a number."""

    ix: Ix


@dataclass(frozen=True)
class Load:
    buffer: Buffer
    offset: Ix


# These two are made for every node of a model: a frozen class takes three times as long to fill.
@dataclass(unsafe_hash=True, slots=True)
class Ref:
    """An element of a computed tensor, resolved by the scheduler."""

    tensor: Tensor
    index: tuple[Ix, ...]


@dataclass(unsafe_hash=True, slots=True)
class Op:
    name: str
    args: tuple[Expr, ...]


Kind = Const | Index | Load | Ref | Op
_uids = itertools.count()
_table: dict[tuple[object, ...], Expr] = {}


class Expr:
    """A shared expression. Build with the functions below, never directly."""

    __slots__ = ("__weakref__", "below", "dtype", "kind", "uid")

    def __init__(self, kind: Kind, dtype: str) -> None:
        self.kind = kind
        self.dtype = dtype
        self.uid = next(_uids)
        self.below = kind.args if isinstance(kind, Op) else None  # `children`, once they were asked for

    def __repr__(self) -> str:
        kind = self.kind
        if isinstance(kind, Op):
            return f"{kind.name}({', '.join(map(repr, kind.args))})"
        if isinstance(kind, Load):
            return f"{kind.buffer.name}[{kind.offset!r}]"
        if isinstance(kind, Ref):
            return f"t{kind.tensor.uid}{list(kind.index)!r}"
        return repr(kind.value if isinstance(kind, Const) else kind.ix)

    @property
    def args(self) -> tuple[Expr, ...]:
        return self.kind.args if isinstance(self.kind, Op) else ()


def _shared(key: tuple[object, ...], kind: Kind, dtype: str) -> Expr:
    found = _table.get(key)
    if found is None:
        found = _table[key] = Expr(kind, dtype)
    return found


def reset() -> None:
    """Forget shared expressions; called between models so that memory stays flat."""
    _table.clear()


def const(value: float | int | bool, dtype: str) -> Expr:
    if dtype in FLOATS + NARROW:
        value = float(value)
        bits: object = struct.pack("<d", value) if not math.isnan(value) else "nan"
    elif dtype == "b":
        value = bool(value)
        bits = value
    else:
        value = bits = int(value)
    return _shared(("c", bits, dtype), Const(value), dtype)


def index(value: Ix, dtype: str = "i64") -> Expr:
    if value.const is not None:
        return const(value.const, dtype)
    return _shared(("i", value.key, dtype), Index(value), dtype)


def load(buffer: Buffer, offset: Ix) -> Expr:
    if buffer.contents is not None and offset.const is not None:
        return const(buffer.contents[offset.const], buffer.dtype)
    return _shared(("l", buffer.uid, offset.key), Load(buffer, offset), buffer.dtype)


def ref(tensor: Tensor, at: tuple[Ix, ...]) -> Expr:
    return _shared(("r", tensor.uid, tuple(i.key for i in at)), Ref(tensor, at), tensor.dtype)


def op(name: str, *args: Expr, dtype: str | None = None) -> Expr:
    """An operation of the vocabulary in vec.h and math.h; the result has the first operand's dtype unless told."""
    if dtype is None:
        dtype = "b" if name in COMPARISONS else args[-1].dtype if name == "sel" else args[0].dtype
    simpler = _simplify(name, args, dtype)
    if simpler is not None:
        return simpler
    return _shared((name, *(a.uid for a in args), dtype), Op(name, args), dtype)


def cast(value: Expr, dtype: str) -> Expr:
    if value.dtype == dtype:
        return value
    if isinstance(value.kind, Const) and dtype in NARROW:
        return const(float(np.asarray(value.kind.value).astype(BY_NAME[dtype].numpy)), dtype)
    if isinstance(value.kind, Const) and (dtype in FLOATS or value.dtype == "b"):
        return const(value.kind.value, dtype)
    if isinstance(value.kind, Index) and dtype in ("i32", "i64"):
        return index(value.kind.ix, dtype)
    if dtype in NARROW and isinstance(value.kind, Op) and value.kind.name == "cvt" and value.args[0].dtype == dtype:
        return value.args[0]  # it was widened, which loses nothing
    if value.dtype in NARROW or dtype in NARROW:
        return _narrow_cast(value, dtype)
    return op("cvt", value, dtype=dtype)


def _narrow_cast(value: Expr, dtype: str) -> Expr:
    """Narrow types are left for, and entered from, the type that they are computed in."""
    if value.dtype in NARROW:
        wide = BY_NAME[value.dtype].compute
        return cast(op("cvt", value, dtype=wide), dtype)
    wide = BY_NAME[dtype].compute
    return op("cvt", value if value.dtype == wide else cast(value, wide), dtype=dtype)


def select(condition: Expr, yes: Expr, no: Expr) -> Expr:
    return op("sel", condition, yes, no)


def rounded(value: Expr) -> Expr:
    """A value that is computed in several places, and is to be the same number in each: never unrounded as a part of a
    fused multiply-add."""
    return op("rounded", value) if isinstance(value.kind, Op) and value.dtype in FLOATS else value


def _simplify(name: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
    if name not in ("sel", "mul", "add", "sub", "div"):
        return None
    if name == "sel" and (args[1] is args[2] or isinstance(args[0].kind, Const)):
        return args[1] if args[1] is args[2] or args[0].kind.value else args[2]  # type: ignore[union-attr]
    values = [a.kind.value if isinstance(a.kind, Const) else None for a in args]
    if name == "mul" and dtype in INTS + FLOATS and 1 in values:
        return args[1] if values[0] == 1 else args[0]
    if name == "add" and dtype in INTS and 0 in values:
        return args[1] if values[0] == 0 else args[0]
    if name in ("sub",) and dtype in INTS + FLOATS and values[1] == 0 and not _negative_zero(values[1]):
        return args[0]
    if name == "div" and values[1] == 1:
        return args[0]
    return None


def _negative_zero(value: object) -> bool:
    return isinstance(value, float) and math.copysign(1.0, value) < 0


def walk(*roots: Expr, known: Container[int] = ()) -> list[Expr]:
    """All expressions below the roots, operands first. Iterative: chains may be very long.

    The search ends at expressions whose uid is `known`, which are left out: memos stay linear in the graph.
    """
    order: list[Expr] = []
    done: set[int] = set()
    waiting: list[Expr] = []
    stack: list[Expr | None] = [*reversed(roots)]  # None: all below the last one that waits is done
    while stack:
        node = stack.pop()
        if node is None:
            order.append(waiting.pop())
            continue
        if node.uid in done or node.uid in known:
            continue
        done.add(node.uid)
        below = node.below if node.below is not None else children(node)
        if not below:
            order.append(node)
            continue
        waiting.append(node)
        stack.append(None)
        stack += below[::-1]
    return order


def children(node: Expr) -> tuple[Expr, ...]:
    """Operands, and expressions inside indices (data-dependent reads)."""
    below = node.below
    if below is None:
        kind = node.kind
        if isinstance(kind, Load):
            below = index_expressions(kind.offset)
        elif isinstance(kind, Index):
            below = index_expressions(kind.ix)
        else:
            below = tuple(e for i in kind.index for e in index_expressions(i)) if isinstance(kind, Ref) else ()
        node.below = below
    return below


def index_expressions(value: Ix) -> tuple[Expr, ...]:
    return tuple(a.expr for a in value.data)


def cost(node: Expr) -> int:
    return COST.get(node.kind.name, 1) if isinstance(node.kind, Op) else 0


def own_vars(node: Expr) -> frozenset[Var]:
    """Loop variables that appear in this node's own indices."""
    kind = node.kind
    if isinstance(kind, Load):
        return kind.offset.vars
    if isinstance(kind, Index):
        return kind.ix.vars
    if isinstance(kind, Ref):
        return frozenset(v for i in kind.index for v in i.vars)
    return frozenset()
