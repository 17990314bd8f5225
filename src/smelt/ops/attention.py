"""Attention of the ONNX domain, and what its relatives in other domains share with it.

Input: queries, keys and values by head. Output: the weighted values, the caches, the scores. Invariant: a row that may
look at nothing gives zeros, and that is decided by the bias alone, never by scores that may be NaN; heads that share
keys and values read the same memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from smelt.ir.kernel import Builder, Expr, Ix, Tensor, Unsupported, ix
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.index import nonneg

from .normalization import onto, requested
from .registry import Call, op
from .work import any_attention_work

NOTHING = -math.inf
PRECISIONS = {0: "f32", 1: "f32", 11: "f64"}
AFTER_SOFTCAP, WITH_BIAS, AFTER_SOFTMAX = 1, 2, 3


@dataclass(frozen=True)
class Scoring:
    """How queries meet keys: `bias` broadcasts onto the scores; `may_be_empty` when a whole row of it may be -inf;
    `precision` is that of the softmax; `sink` is a score that takes its share of each row and weighs nothing.
    `zero_padded`: the bias masks nothing of the keys in all rows but zero padding. A row of nothing but -inf gives
    zeros, or else NaN."""

    scale: float | None = None
    softcap: float = 0.0
    bias: Tensor | None = None
    may_be_empty: bool = True
    precision: str = "f32"
    sink: Tensor | None = None
    zero_padded: bool = False
    zeros_for_nothing: bool = True


@dataclass(frozen=True)
class Attended:
    """`scores` before the bias, `biased` after it, `weights` after the softmax."""

    y: Tensor
    scores: Tensor
    biased: Tensor
    weights: Tensor


def split_heads(call: Call, x: Tensor, heads: int) -> Tensor:
    """(batch, length, heads * depth) as (batch, heads, length, depth)."""
    if heads <= 0:
        raise Unsupported("the number of heads is missing")
    k, (batch, length, hidden) = call.k, x.shape
    depth = hidden // heads
    k.require_equal(depth * heads, hidden, "heads must divide the hidden size")
    return k.transpose(k.reshape(x, (batch, length, heads, depth)), (0, 2, 1, 3))


def merge_heads(call: Call, y: Tensor) -> Tensor:
    k, (batch, heads, length, depth) = call.k, y.shape
    return k.reshape(k.transpose(y, (0, 2, 1, 3)), (batch, length, heads * depth))


def shared_heads(call: Call, x: Tensor, heads: Ix) -> Tensor:
    """Each head of x serves as many neighbours as there are queries' heads to one of x."""
    own = x.shape[1]
    if own == heads:
        return x
    times = heads // own
    call.k.require_equal(times * own, heads, "the heads of the queries must be a multiple of those of the keys")
    return call.k.view(x, (x.shape[0], heads, *x.shape[2:]), lambda w: (w[0], w[1] // times, w[2], w[3]))


def of_batch(call: Call, x: Tensor, batch: Ix) -> Tensor:
    """Keys or values of as many batch indices as there are queries': sizes known only at run time are checked there."""
    own = x.shape[0]
    if own == batch or (own.const is not None and batch.const is not None):
        return x
    call.k.require_equal(own, batch, "queries, keys and values must have the same batch size")
    return call.k.view(x, (batch, *x.shape[1:]), lambda w: w)


def _highest(k: Builder, bias: Tensor, scores: Sequence[Ix]) -> Tensor:
    """Of each row of a bias, in a shape that does not broadcast the scores."""
    top = k.reduce("max", bias, [bias.rank - 1])
    whole = (*scores[:-1], ix(1))
    fits = all(s.const == 1 or s == w for s, w in zip(top.shape[::-1], whole[::-1], strict=False))
    return top if fits else onto(k, top, whole)


def attend(call: Call, q: Tensor, key: Tensor, value: Tensor, how: Scoring) -> Attended:
    """softmax(q k^T) v for operands of shape (batch, heads, length, depth)."""
    k = call.k
    if any(x.dtype != "f32" for x in (q, key, value)):
        raise Unsupported("attention on other than float32")
    heads = q.shape[1]
    key, value = (shared_heads(call, of_batch(call, x, q.shape[0]), heads) for x in (key, value))
    scores = _scaled(
        call, k.contraction(q, k.transpose(key, (0, 1, 3, 2)), zero_padded=how.zero_padded), how, q.shape[-1]
    )
    if how.softcap > 0:
        cap = E.const(how.softcap, "f32")
        scores = k.map(lambda s: E.op("mul", E.op("tanh", E.op("div", s, cap)), cap), scores)
    if how.bias is None:
        weights = softmax(call, scores, None, how)
        return Attended(k.contraction(weights, value), scores, scores, weights)
    bias = onto(k, how.bias, scores.shape)
    biased = k.map(lambda s, b: E.op("add", s, b), scores, bias)
    blind = _highest(k, how.bias, scores.shape) if how.may_be_empty else None
    weights = softmax(call, biased, blind, how)
    return Attended(k.contraction(weights, value, zero_padded=how.zero_padded), scores, biased, weights)


def _scaled(call: Call, scores: Tensor, how: Scoring, depth: Ix) -> Tensor:
    if how.scale is None and depth.const is None:
        raise Unsupported("the depth of a head is known only at run time")
    scale = how.scale if how.scale is not None else 1 / math.sqrt(max(depth.const or 1, 1))
    return call.k.map(lambda s: E.op("mul", s, E.const(scale, "f32")), scores)


def softmax(call: Call, scores: Tensor, blind: Tensor | None, how: Scoring) -> Tensor:
    """Along the last axis. Rows of nothing but -inf give zeros (or NaN, as without a mask), as do those whose largest
    bias, `blind`, is -inf."""
    k, axis, dtype, sink = call.k, scores.rank - 1, how.precision, how.sink
    x = k.cast(scores, dtype)
    zero, one, nothing = (E.const(v, dtype) for v in (0.0, 1.0, NOTHING))
    top = k.reduce("top", x, [axis])
    if how.zeros_for_nothing:
        top = k.map(lambda t: E.select(E.op("eq", t, nothing), zero, t), top)
    if sink is not None:
        top = k.map(lambda t, s: E.op("max", t, s), top, k.cast(sink, dtype))
    powers = k.map(lambda e, t: E.op("exp", E.op("sub", e, t)), x, top)
    if blind is not None:
        mask_value = E.const(NOTHING, blind.dtype)
        powers = k.map(lambda e, b: E.select(E.op("eq", b, mask_value), zero, e), powers, blind)
    total = k.reduce("sum", powers, [axis])
    if sink is not None:
        total = k.map(lambda a, s, t: E.op("add", a, E.op("exp", E.op("sub", s, t))), total, k.cast(sink, dtype), top)
    share = k.map(lambda t: E.op("div", one, E.select(E.op("eq", t, zero), one, t)), total)
    return k.cast(k.map(lambda e, s: E.op("mul", e, s), powers, share), scores.dtype)


# biases


def gate(call: Call, allowed: Tensor, mask_value: float = NOTHING) -> Tensor:
    """0 where allowed, `mask_value` elsewhere."""
    return call.k.map(lambda a: E.select(a, E.const(0.0, "f32"), E.const(mask_value, "f32")), allowed)


def banded(
    call: Call, rows: Ix, columns: Ix, offset: Tensor | Ix, left: int, right: int, mask_value: float = NOTHING
) -> Tensor:
    """A query at row i looks at the columns from i + offset - left to i + offset + right; -1 is no bound."""
    k = call.k
    row, column = k.iota((rows, 1), 0, "i32"), k.iota((1, columns), 1, "i32")
    if isinstance(offset, Ix):
        place = k.index_map((1, 1), "i32", lambda _: E.index(offset, "i32"))
    else:
        place = k.cast(offset, "i32")

    def inside(i: Expr, j: Expr, o: Expr) -> Expr:
        here = E.op("add", i, o)
        parts = [E.op("le", j, E.op("add", here, E.const(right, "i32")))] if right >= 0 else []
        parts += [E.op("ge", j, E.op("sub", here, E.const(left, "i32")))] if left >= 0 else []
        return parts[0] if len(parts) == 1 else E.op("and", *parts)

    return gate(call, k.map(inside, row, column, place, dtype="b"), mask_value)


def plus(call: Call, *parts: Tensor | None) -> Tensor | None:
    """The sum of the biases that there are."""
    made: Tensor | None = None
    for part in parts:
        if part is not None:
            made = part if made is None else call.k.map(lambda a, b: E.op("add", a, b), made, part)
    return made


def additive(call: Call, mask: Tensor) -> Tensor:
    """A mask of truth values as a bias."""
    if mask.dtype == "b":
        return gate(call, mask)
    if mask.dtype != "f32":
        raise Unsupported("a mask of other than float32 or bool")
    return mask


def _padded(call: Call, mask: Tensor, length: Ix) -> Tensor:
    """A mask may be shorter than the keys: nobody looks at what it does not cover."""
    missing = length - mask.shape[-1]
    if missing.const == 0:
        return mask
    none = [0] * (mask.rank - 1)
    return call.k.pad(mask, [*none, 0], [*none, missing], NOTHING)


# the op


@dataclass(frozen=True)
class Cache:
    """Keys and values of all calls so far; `before` of them are from earlier calls."""

    key: Tensor
    value: Tensor
    before: Ix


def with_past(call: Call, key: Tensor, value: Tensor, past_key: Tensor | None, past_value: Tensor | None) -> Cache:
    """Keys and values of this call behind those of earlier ones."""
    if past_key is None or past_value is None:
        if past_key is not past_value:
            raise Unsupported("a past of keys without values")
        return Cache(key, value, ix(0))
    k = call.k
    return Cache(k.concat([past_key, key], 2), k.concat([past_value, value], 2), past_key.shape[2])


@op("Attention", since=23, kind="product", work=any_attention_work)
def attention(call: Call) -> list[Tensor | None]:
    q, key, value = call.x(0), call.x(1), call.x(2)
    flat = q.rank == 3
    if flat:
        heads, kv_heads = call.int("q_num_heads"), call.int("kv_num_heads")
        q = split_heads(call, q, heads)
        key, value = split_heads(call, key, kv_heads), split_heads(call, value, kv_heads)
    if any(x.rank != 4 for x in (q, key, value)):
        raise Unsupported("operands of attention with other than 3 or 4 axes")
    cache = with_past(call, key, value, call.maybe(4), call.maybe(5))
    precision = PRECISIONS.get(call.int("softmax_precision", 1))
    if precision is None:
        raise Unsupported("a softmax in less precision than float32")
    scale = call.float("scale") if call.has("scale") else None
    how = Scoring(scale, call.float("softcap", 0.0), *_bias(call, q, cache), precision)
    made = attend(call, q, cache.key, cache.value, how)
    y = merge_heads(call, made.y) if flat else made.y
    return requested(call, [y, cache.key, cache.value, _scores(call, made)])


def _scores(call: Call, made: Attended) -> Tensor | None:
    if call.n_outputs < 4:
        return None
    mode = call.int("qk_matmul_output_mode", 0)
    if mode == 0 and call.float("softcap", 0.0) > 0:
        raise Unsupported("scores before the softcap as an output")
    return {WITH_BIAS: made.biased, AFTER_SOFTMAX: made.weights}.get(mode, made.scores)


def _bias(call: Call, q: Tensor, cache: Cache) -> tuple[Tensor | None, bool]:
    """The sum of all masks, and whether it may forbid a whole row."""
    rows, length = q.shape[2], cache.key.shape[2]
    filled = call.maybe(6)
    offset = cache.before if filled is None else _per_batch_offset(call, filled, rows)
    left, right = call.int("left_window_size", -1), call.int("right_window_size", -1)
    mask = call.maybe(3)
    given = _padded(call, additive(call, mask), length) if mask is not None else None
    causal = banded(call, rows, length, offset, -1, 0) if call.int("is_causal", 0) else None
    window = banded(call, rows, length, offset, left, right) if left >= 0 or right >= 0 else None
    padding = _filled_part(call, filled, length) if filled is not None else None
    never_empty = mask is None and filled is None and window is None and nonneg(cache.before)
    return plus(call, given, causal, window, padding), not never_empty


def _per_batch_offset(call: Call, filled: Tensor, rows: Ix) -> Tensor:
    shaped = call.k.reshape(call.k.cast(filled, "i64"), (filled.shape[0], 1, 1, 1))
    return call.k.map(lambda f: E.op("sub", f, E.index(rows)), shaped)


def _filled_part(call: Call, filled: Tensor, length: Ix) -> Tensor:
    k = call.k
    shaped = k.reshape(k.cast(filled, "i64"), (filled.shape[0], 1, 1, 1))
    allowed = k.map(lambda j, f: E.op("lt", j, f), k.iota((1, length), 1), shaped, dtype="b")
    return gate(call, allowed)
