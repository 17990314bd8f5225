"""Reductions over axes, and the index of the largest or smallest element.

Input: axes as an attribute, as a constant operand, or as an operand known only at run time. Output: the reduced
tensor. Invariant: the reduction of nothing is the identity element, and NaN propagates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from smelt.ir.kernel import Builder, Expr, Ix, Tensor, fn, ix, product
from smelt.ir.kernel import expr as E
from smelt.ops.axes import axis_of
from smelt.ops.registry import Call, op

Array = np.ndarray[Any, Any]
Body = Callable[[Builder, Tensor, Sequence[int]], Tensor]


def static_axis(axis: int, rank: int) -> int:
    """An axis counted from the front. A scalar is allowed axis 0 and -1, as in numpy's reductions of rank 0."""
    return axis_of(axis, max(rank, 1))


@dataclass(frozen=True)
class Spread:
    """A tensor made ready for a reduction over `axes`; `close` gives the result its final shape."""

    x: Tensor
    axes: Sequence[int]
    close: Callable[[Tensor], Tensor]


def spread(call: Call, x: Tensor, axes: Sequence[Ix], *, keepdims: bool) -> Spread:
    k = call.k
    if not x.rank:
        return Spread(x, (), lambda t: t)
    plain = [a.const for a in axes]
    known = [static_axis(a, x.rank) for a in plain if a is not None]
    if len(known) < len(plain):
        return _runtime_spread(k, x, axes, keepdims=keepdims)
    gone = sorted(set(known))
    return Spread(x, gone, lambda t: t if keepdims or not gone else k.squeeze(t, gone))


def axis_flags(k: Builder, axes: Sequence[Ix], rank: int) -> list[Ix]:
    """For each dimension 1 when it is among the run-time axes, else 0. That axes are valid is checked at run time."""
    flags: list[Ix] = []
    for d in range(rank):
        hits = [fn("max", fn("eq", a, d), fn("eq", a, d - rank)) for a in axes]
        flag = hits[0]
        for hit in hits[1:]:
            flag = fn("max", flag, hit)
        flags.append(flag)
    k.require_equal(_total(flags), len(axes), "axes must be distinct and in range")
    return flags


def _runtime_spread(k: Builder, x: Tensor, axes: Sequence[Ix], *, keepdims: bool) -> Spread:
    """Twice the rank: dimension d stays in the first half or is reduced in the second one, and has size 1 elsewhere."""
    rank = x.rank
    flags = axis_flags(k, axes, rank)
    kept = [fn("sel", f, 1, n) for f, n in zip(flags, x.shape, strict=True)]
    reduced = [fn("sel", f, n, 1) for f, n in zip(flags, x.shape, strict=True)]
    wide = k.view(x, (*kept, *reduced), lambda w: [w[d] + w[d + rank] for d in range(rank)])
    tail = [ix(0)] * rank

    def keep(t: Tensor) -> Tensor:
        return k.view(t, kept, lambda w: [*w, *tail])

    def drop(t: Tensor) -> Tensor:
        hits = _kept_positions(flags, rank - len(axes))
        shape = [_total(fn("sel", hit[d], x.shape[d], 0) for d in range(rank)) for hit in hits]
        return k.view(t, shape, lambda w: [*(_total(hit[d] * i for hit, i in zip(hits, w, strict=True))
                                             for d in range(rank)), *tail])  # fmt: skip

    return Spread(wide, range(rank, 2 * rank), keep if keepdims else drop)


def _kept_positions(flags: Sequence[Ix], count: int) -> list[list[Ix]]:
    """[j][d] is 1 when dimension d is the j-th one that stays."""
    before = ix(0)
    table: list[list[Ix]] = [[] for _ in range(count)]
    for flag in flags:
        for j in range(count):
            table[j].append(fn("sel", flag, 0, fn("eq", before, j)))
        before = before + fn("sel", flag, 0, 1)
    return table


def _total(values: Iterable[Ix]) -> Ix:
    total = ix(0)
    for value in values:
        total = total + value
    return total


# what is computed


def count_of(x: Tensor, axes: Sequence[int], dtype: str) -> Expr:
    """How many elements are reduced, as a number of the given dtype."""
    return E.cast(E.index(product(x.shape[a] for a in axes)), dtype)


def mean_over(k: Builder, x: Tensor, axes: Sequence[int]) -> Tensor:
    count = count_of(x, axes, x.dtype)
    return k.map(lambda s: E.op("div", s, count), k.reduce("sum", x, axes))


def square(e: Expr) -> Expr:
    return E.op("mul", e, e)


def sum_of_squares(k: Builder, x: Tensor, axes: Sequence[int]) -> Tensor:
    return k.reduce("sum", k.map(square, x), axes)


def sum_of_magnitudes(k: Builder, x: Tensor, axes: Sequence[int]) -> Tensor:
    signed = x if x.dtype in E.UNSIGNED else k.map(lambda e: E.op("abs", e), x)
    return k.reduce("sum", signed, axes)


def euclidean_norm(k: Builder, x: Tensor, axes: Sequence[int]) -> Tensor:
    return k.map(lambda s: E.op("sqrt", s), sum_of_squares(k, x, axes))


def _log_sum(k: Builder, x: Tensor, axes: Sequence[int]) -> Tensor:
    return k.map(lambda s: E.op("log", s), k.reduce("sum", x, axes))


def _log_sum_exp(k: Builder, x: Tensor, axes: Sequence[int]) -> Tensor:
    """Shifted by the largest element, unless that is infinite or NaN: then nothing is shifted."""

    def shift(m: Expr) -> Expr:
        finite = E.op("lt", E.op("abs", m), E.const(float("inf"), m.dtype))
        return E.select(finite, m, E.const(0, m.dtype))

    top = k.map(shift, k.reduce("max", x, axes))
    total = k.reduce("sum", k.map(lambda e, m: E.op("exp", E.op("sub", e, m)), x, top), axes)
    return k.map(lambda s, m: E.op("add", E.op("log", s), m), total, top)


def _plain(kind: str) -> Body:
    return lambda k, x, axes: k.reduce(kind, x, axes)


def _as_float(body: Body) -> Body:
    """Integers take the detour over float64 where a root or a logarithm is drawn."""

    def wrapped(k: Builder, x: Tensor, axes: Sequence[int]) -> Tensor:
        if x.dtype in E.FLOATS:
            return body(k, x, axes)
        return k.cast(body(k, k.cast(x, "f64"), axes), x.dtype)

    return wrapped


def _as_number(body: Body) -> Body:
    """A truth value is reduced as 0 or 1."""

    def wrapped(k: Builder, x: Tensor, axes: Sequence[int]) -> Tensor:
        if x.dtype != "b":
            return body(k, x, axes)
        return k.cast(body(k, k.cast(x, "u8"), axes), "b")

    return wrapped


_BODIES: dict[str, Body] = {
    "ReduceSum": _plain("sum"),
    "ReduceProd": _plain("prod"),
    "ReduceMax": _as_number(_plain("max")),
    "ReduceMin": _as_number(_plain("min")),
    "ReduceMean": mean_over,
    "ReduceL1": sum_of_magnitudes,
    "ReduceL2": _as_float(euclidean_norm),
    "ReduceSumSquare": sum_of_squares,
    "ReduceLogSum": _as_float(_log_sum),
    "ReduceLogSumExp": _as_float(_log_sum_exp),
}

_AXES_AS_INPUT = {name: 13 if name == "ReduceSum" else 18 for name in _BODIES}


def _reduce(call: Call, axes: Sequence[Ix]) -> Tensor:
    ready = spread(call, call.x(), axes, keepdims=bool(call.int("keepdims", 1)))
    return ready.close(_BODIES[call.op](call.k, ready.x, ready.axes))


def _all_axes(call: Call) -> list[Ix]:
    return [ix(d) for d in range(call.x().rank)]


def reduce_by_attribute(call: Call) -> Tensor:
    axes = call.ints("axes", ())
    return _reduce(call, [ix(a) for a in axes] if axes else _all_axes(call))


def reduce_by_input(call: Call) -> Tensor:
    axes = call.values(1)
    if axes:
        return _reduce(call, axes)
    return _reduce(call, [] if call.int("noop_with_empty_axes", 0) else _all_axes(call))


def log_sum_exp_reference(x: Array, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Array:
    """In place of onnx.reference, which gives NaN for rows of infinities and fails on scalars."""
    every = () if noop_with_empty_axes else tuple(range(x.ndim))
    where = tuple(int(a) for a in axes) if axes is not None and len(axes) else every
    top = np.max(x, axis=where, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(top), top, 0)
    total = np.log(np.sum(np.exp(x - shift), axis=where, keepdims=True)) + shift
    return (total if keepdims else np.squeeze(total, axis=where)).astype(x.dtype)


_REFERENCES = {"ReduceLogSumExp": log_sum_exp_reference}

for _name, _since in _AXES_AS_INPUT.items():
    op(_name, since=1, before=_since, kind="reduction", reference=_REFERENCES.get(_name))(reduce_by_attribute)
    op(_name, since=_since, kind="reduction", reference=_REFERENCES.get(_name))(reduce_by_input)


@op("ArgMax", "ArgMin", kind="reduction", steps=True)
def arg_extreme(call: Call) -> Tensor:
    x = call.x()
    axis = static_axis(call.int("axis", 0), x.rank)
    ready = spread(call, x, [ix(axis)], keepdims=bool(call.int("keepdims", 1)))
    last = "_last" if call.int("select_last_index", 0) else ""
    return ready.close(call.k.reduce(call.op.lower() + last, ready.x, ready.axes))
