"""Contents of small integer tensors as size expressions: what shape arithmetic computes.

Input: a tensor. Output: its elements as `Ix`, or None. Invariant: an expression given here equals what the generated
code would compute, wrap-around included.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from . import expr as E
from .expr import Expr
from .index import Ix, Sym, exact_div, fn, ix, nonneg, of
from .layout import Index, unflat
from .tensor import Assemble, Map, Reduce, Tensor

_REDUCE_OP = {"sum": "add", "prod": "mul", "min": "min", "max": "max"}


def contents(x: Tensor) -> tuple[Ix, ...] | None:
    """The elements of a small integer tensor as size expressions, or None when they cannot be told."""
    count = x.elements.const
    if count is None or count > 256 or x.dtype not in (*E.INTS, "b"):
        return None
    out: list[Ix] = []
    for k in range(count):
        value = _value(x.at(unflat(ix(k), x.shape)), 0)
        if value is None:
            return None
        out.append(value)
    return tuple(out)


def _value(e: Expr, depth: int) -> Ix | None:
    kind = e.kind
    if depth > 60 or e.dtype not in (*E.INTS, "b"):
        return None
    if isinstance(kind, E.Const):
        return ix(int(kind.value))
    if isinstance(kind, E.Index):
        return kind.ix
    if isinstance(kind, E.Load):
        return _loaded(kind)
    if isinstance(kind, E.Ref):
        return _ref_value(kind.tensor, kind.index, depth)
    args = [_value(a, depth + 1) for a in kind.args]
    return _combine(kind.name, e.dtype, args)


def _loaded(load: E.Load) -> Ix | None:
    if load.offset.const is None or load.buffer.dtype not in ("i32", "i64"):
        return None
    return of(Sym(f"{load.buffer.name}[{load.offset.const}]", nonneg=False))


def _ref_value(tensor: Tensor, where: Index, depth: int) -> Ix | None:
    definition = tensor.definition
    if isinstance(definition, Map):
        return _value(tensor.expand(where), depth + 1)
    if isinstance(definition, Assemble):
        return _piece_value(definition, where, depth)
    if isinstance(definition, Reduce) and definition.kind in ("sum", "prod", "min", "max"):
        return _reduced_value(definition, where, depth)
    return None


def _piece_value(assembly: Assemble, where: Index, depth: int) -> Ix | None:
    for offset, piece in assembly.pieces:
        inner = [w - o for w, o in zip(where, offset, strict=True)]
        if any(i.const is None or s.const is None for i, s in zip(inner, piece.shape, strict=True)):
            return None
        if all(0 <= (i.const or 0) < (s.const or 0) for i, s in zip(inner, piece.shape, strict=True)):
            return _value(piece.at(inner), depth + 1)
    return ix(int(assembly.fill)) if assembly.fill is not None else None


def _reduced_value(reduce: Reduce, where: Index, depth: int) -> Ix | None:
    sizes = [reduce.src.shape[a].const for a in reduce.axes]
    if any(s is None or s == 0 or s > 64 for s in sizes):
        return None
    total: Ix | None = None
    for combo in itertools.product(*(range(s or 0) for s in sizes)):
        place = list(where)
        for axis, k in zip(reduce.axes, combo, strict=True):
            place[axis] = ix(k)
        value = _value(reduce.src.at(place), depth + 1)
        if value is None:
            return None
        total = value if total is None else _combine(_REDUCE_OP[reduce.kind], reduce.src.dtype, [total, value])
        if total is None:
            return None
    return total


def _combine(name: str, dtype: str, args: Sequence[Ix | None]) -> Ix | None:
    """Integer arithmetic of shape computations, in ONNX's meaning; None where the type would wrap."""
    value = _combined(name, dtype, args)
    if value is None or value.const is None or dtype == "b":
        return value
    bits = 8 * E.SIZE_BYTES[dtype]
    low, high = (0, 2**bits) if dtype in E.UNSIGNED else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    return value if low <= value.const < high else None


def _combined(name: str, dtype: str, args: Sequence[Ix | None]) -> Ix | None:
    known = [a for a in args if a is not None]
    if len(known) != len(args):
        return None
    if name == "cvt":
        if dtype == "b":
            return 1 - fn("eq", known[0], 0)
        return known[0] if dtype in ("i32", "i64") else None
    if name == "abs":
        return fn("max", known[0], -known[0])
    if name == "neg":
        return -known[0]
    if name == "sel":
        return fn("sel", *known)
    if name == "not":
        return 1 - known[0]
    if len(known) != 2:
        return None
    a, b = known
    simple: dict[str, Callable[[], Ix]] = {
        "add": lambda: a + b,
        "sub": lambda: a - b,
        "mul": lambda: a * b,
        "mod": lambda: a % b,
        "min": lambda: fn("min", a, b),
        "max": lambda: fn("max", a, b),
        "eq": lambda: fn("eq", a, b) if a != b else ix(1),
        "ne": lambda: 1 - fn("eq", a, b) if a != b else ix(0),
        "lt": lambda: fn("lt", a, b),
        "gt": lambda: fn("lt", b, a),
        "le": lambda: 1 - fn("lt", b, a),
        "ge": lambda: 1 - fn("lt", a, b),
        "and": lambda: a * b,
        "or": lambda: fn("max", a, b),
    }
    if name == "div":
        whole = exact_div(a, b)
        if whole is not None:
            return whole
        return a // b if nonneg(a) and nonneg(b) else fn("truncdiv", a, b)
    return simple[name]() if name in simple else None
