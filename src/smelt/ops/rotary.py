"""Rotary position embeddings: pairs of a head's elements rotated by an angle that depends on the position.

Input: (batch, length, heads * depth) or (batch, heads, length, depth), and tables of cosines and sines. Output: the
same shape. Invariant: a pair is an axis of size 2, so that the partner of an element is an affine index away and
nothing is moved.
"""

from __future__ import annotations

from collections.abc import Callable

from smelt.ir.kernel import Expr, Ix, Tensor, Unsupported, ix
from smelt.ir.kernel import expr as E

from .registry import Call, op


def rotated(call: Call, x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool) -> Tensor:
    """x of (batch, length, heads, depth); the tables are (batch or 1, length, half of what is rotated)."""
    k, half = call.k, cos.shape[-1]
    width, depth = half * 2, x.shape[-1]
    for axis, size in enumerate(cos.shape):
        k.require_equal(sin.shape[axis], size, "the tables of cosines and sines must agree")
    if width == depth:
        return _pairs(call, x, cos, sin, interleaved)
    if not (width.const and depth.const and width.const < depth.const):
        raise Unsupported("the rotated part of a head is known only at run time")
    zeros, ones = [ix(0)] * 3, [ix(1)] * 4
    part = k.slice(x, [*zeros, ix(0)], ones, [*x.shape[:3], width])
    rest = k.slice(x, [*zeros, width], ones, [*x.shape[:3], depth - width])
    return k.concat([_pairs(call, part, cos, sin, interleaved), rest], 3)


def _pairs(call: Call, x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    k, half = call.k, cos.shape[-1]
    split = k.reshape(x, (*x.shape[:3], half, 2) if interleaved else (*x.shape[:3], 2, half))
    pair = 4 if interleaved else 3
    partner = k.view(split, split.shape, lambda w: [1 - i if a == pair else i for a, i in enumerate(w)])
    tables = [_beside(call, t, pair) for t in (cos, sin)]
    side = k.iota([ix(2) if a == pair else ix(1) for a in range(5)], pair)

    def rotate(e: Expr, other: Expr, c: Expr, s: Expr, place: Expr) -> Expr:
        across = E.op("mul", other, s)
        first = E.op("eq", place, E.const(0, "i64"))
        return E.op("add", E.op("mul", e, c), E.select(first, E.op("neg", across), across))

    return k.reshape(k.map(rotate, split, partner, *tables, side), x.shape)


def _beside(call: Call, table: Tensor, pair: int) -> Tensor:
    """(batch, length, half) as (batch, length, 1, 1, half), or with the pair's axis last."""
    return call.k.unsqueeze(table, [2, 3] if pair == 3 else [2, 4])


def rows_of(call: Call, table: Tensor, places: Tensor | None, length: Ix) -> Tensor:
    """A table's rows at the positions requested for: (batch or 1, length, half)."""
    k = call.k
    if places is not None:
        return k.gather(table, places, 0)
    if table.rank == 3:
        return table
    return k.unsqueeze(k.slice(table, [ix(0), ix(0)], [ix(1), ix(1)], [length, table.shape[1]]), [0])


@op("RotaryEmbedding", since=23, kind="elementwise", flops=3)
def rotary_embedding(call: Call) -> Tensor:
    x, places = call.x(0), call.maybe(3)
    heads = call.int("num_heads", 0)
    if x.rank == 3 and heads <= 0:
        raise Unsupported("the number of heads is missing")
    tables = [rows_of(call, call.x(i), places, x.shape[1] if x.rank == 3 else x.shape[2]) for i in (1, 2)]
    return by_head(call, x, heads, lambda h: rotated(call, h, *tables, interleaved=bool(call.int("interleaved", 0))))


def by_head(call: Call, x: Tensor, heads: int, change: Callable[[Tensor], Tensor]) -> Tensor:
    """`change` sees (batch, length, heads, depth), whatever the layout of x."""
    k = call.k
    if x.rank == 3:
        shape = (x.shape[0], x.shape[1], heads, x.shape[2] // heads)
        return k.reshape(change(k.reshape(x, shape)), x.shape)
    if x.rank != 4:
        raise Unsupported("a rotary embedding of other than 3 or 4 axes")
    return k.transpose(change(k.transpose(x, (0, 2, 1, 3))), (0, 2, 1, 3))
