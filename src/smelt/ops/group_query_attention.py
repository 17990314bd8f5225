"""Grouped queries of ONNX Runtime's own domain: a causal decoder's attention with its cache.

Input: as its schema says; a cache grows by the keys of the call, or is a buffer of fixed length that they are written
into. Output: (batch, length, heads * depth) and the caches. Invariant: the number of keys that a batch index has is
data, the lengths of the caches are sizes; beyond its keys a cache holds zeros: nothing uninitialized is weighed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from smelt.ir.kernel import Expr, Ix, Tensor, Unsupported, ix
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.index import fn

from .attention import Cache, Scoring, attend, banded, merge_heads, plus, split_heads
from .normalization import requested
from .registry import Call, op
from .rotary import by_head, rotated, rows_of
from .work import attention_work

Array = np.ndarray[Any, Any]
DOMAIN = "com.microsoft"
QUANTIZED = ("k_quant_type", "v_quant_type")


# reference


def _heads_of(x: Array, depth: int) -> Array:
    return x.reshape(*x.shape[:2], -1, depth).transpose(0, 2, 1, 3)


def _rotated_reference(x: Array, places: Array, cos: Array, sin: Array, interleaved: int) -> Array:
    half, made = cos.shape[1], x.copy()
    one = slice(0, 2 * half, 2) if interleaved else slice(half)
    other = slice(1, 2 * half, 2) if interleaved else slice(half, 2 * half)
    c, s = cos[places][:, None], sin[places][:, None]
    made[..., one] = x[..., one] * c - x[..., other] * s
    made[..., other] = x[..., one] * s + x[..., other] * c
    return made


def _cached_reference(past: Array | None, new: Array, before: Array, length: int) -> Array:
    made = np.zeros((*new.shape[:2], length, new.shape[3]), new.dtype)
    for b, start in enumerate(before):
        if past is not None:
            made[b, :, :start] = past[b, :, :start]
        made[b, :, start : start + new.shape[2]] = new[b]
    return made


def _before_reference(last: Array, rows: int, total: int) -> Array:
    return np.ravel(last).astype(np.int64) * (rows != total) + (1 - rows) * (rows != total)


def _places_reference(before: Array, rows: int) -> Array:
    return before.reshape(-1, 1) + np.arange(rows)


def _masked_reference(before: Array, rows: int, length: int, window: int) -> Array:
    here: Array = before.reshape(-1, 1, 1, 1) + np.arange(rows).reshape(-1, 1)
    away: Array = here - np.arange(length)
    return (away < 0) | (away >= window) if window > 0 else away < 0


def grouped_reference(
    query: Array, key: Array | None, value: Array | None, past_key: Array | None, past_value: Array | None,
    last: Array, total: Array, cos: Array | None = None, sin: Array | None = None, places: Array | None = None,
    given: Array | None = None, sink: Array | None = None, *_: Any, num_heads: int = 1, kv_num_heads: int = 1,
    scale: float = 0.0, softcap: float = 0.0, local_window_size: int = -1, do_rotary: int = 0,
    rotary_interleaved: int = 0, smooth_softmax: int = 0, **__: Any,
) -> tuple[Array, ...]:  # fmt: skip
    if key is None or value is None:
        depth = query.shape[2] // (num_heads + 2 * kv_num_heads)
        cuts = [num_heads * depth, (num_heads + kv_num_heads) * depth]
        query, key, value = np.split(query, cuts, axis=2)
    depth, rows, all_keys = query.shape[2] // num_heads, query.shape[1], int(np.ravel(total)[0])
    q, k, v = (_heads_of(x, depth) for x in (query, key, value))
    before = _before_reference(last, rows, all_keys)
    if do_rotary and cos is not None and sin is not None:
        where = _places_reference(before, rows) if places is None else places
        q, k = (_rotated_reference(x, where, cos, sin, rotary_interleaved) for x in (q, k))
    length = max(all_keys, 0 if past_key is None else past_key.shape[2])
    k, v = _cached_reference(past_key, k, before, length), _cached_reference(past_value, v, before, length)
    scores = q @ np.repeat(k, num_heads // kv_num_heads, 1).swapaxes(2, 3) * (scale or 1 / np.sqrt(depth))
    scores = np.tanh(scores / softcap) * softcap if softcap > 0 else scores
    masked = _masked_reference(before, rows, length, local_window_size)
    scores = np.where(masked, -np.inf, scores if given is None else scores + _wide(given, length))
    drain = np.reshape(sink, (1, -1, 1, 1)) if sink is not None else 0.0 if smooth_softmax else -np.inf
    top = np.maximum(scores.max(axis=-1, keepdims=True), drain)
    powers = np.exp(scores - top)
    weights = powers / (powers.sum(axis=-1, keepdims=True) + np.exp(drain - top))
    made = weights @ np.repeat(v, num_heads // kv_num_heads, 1)
    return made.transpose(0, 2, 1, 3).reshape(len(q), rows, -1), k, v


def _wide(given: Array, length: int) -> Array:
    return np.pad(given, [(0, 0)] * 3 + [(0, length - given.shape[3])])


# lowering


@dataclass(frozen=True)
class _Sizes:
    """`before` holds the keys of earlier calls by batch index, as (batch, 1, 1, 1); `length` is that of the caches,
    `total` the largest number of keys."""

    batch: Ix
    rows: Ix
    total: Ix
    length: Ix
    before: Tensor


def _sizes(call: Call, rows: Ix) -> _Sizes:
    k, last, past = call.k, call.x(5), call.maybe(3)
    found = k.values(call.x(6))
    if not found:
        raise Unsupported("the length of the cache cannot be told from the inputs")
    total, batch = found[0], call.x(0).shape[0]
    if past is None:
        k.require_equal(total, rows, "without a past, all keys are those of the call")
        return _Sizes(batch, rows, total, rows, k.const(0, "i64", (1, 1, 1, 1)))
    k.require_equal(last.elements, batch, "a number of keys for each batch index")
    counted = k.reshape(k.cast(last, "i64"), (batch, 1, 1, 1))
    whole = E.op("eq", E.index(total), E.index(rows))

    def earlier(n: Expr) -> Expr:
        return E.select(whole, E.const(0, "i64"), E.op("sub", E.op("add", n, E.const(1, "i64")), E.index(rows)))

    return _Sizes(batch, rows, total, fn("max", total, past.shape[2]), k.map(earlier, counted))


def _operands(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys, values as (batch, length, heads * depth)."""
    k, q, key, value = call.k, call.x(0), call.maybe(1), call.maybe(2)
    if key is not None and value is not None:
        return q, key, value
    heads, kv_heads = call.int("num_heads"), call.int("kv_num_heads")
    depth = q.shape[2] // (heads + 2 * kv_heads)
    k.require_equal(depth * (heads + 2 * kv_heads), q.shape[2], "heads must divide the hidden size")
    zero, steps, sizes = ix(0), [ix(1)] * 3, (depth * heads, depth * kv_heads, depth * kv_heads)
    starts = (zero, sizes[0], sizes[0] + sizes[1])
    parts = [k.slice(q, [zero, zero, s], steps, [*q.shape[:2], n]) for s, n in zip(starts, sizes, strict=True)]
    return parts[0], parts[1], parts[2]


def _rotate(call: Call, x: Tensor, heads: int, sizes: _Sizes) -> Tensor:
    k, places = call.k, call.maybe(9)
    if places is None:
        start = k.reshape(sizes.before, (sizes.before.shape[0], 1))
        places = k.map(lambda s, i: E.op("add", s, i), start, k.iota((1, sizes.rows), 1))
    tables = [rows_of(call, call.x(i), places, sizes.rows) for i in (7, 8)]
    interleaved = bool(call.int("rotary_interleaved", 0))
    return by_head(call, x, heads, lambda h: rotated(call, h, *tables, interleaved=interleaved))


def _cached(call: Call, past: Tensor | None, new: Tensor, sizes: _Sizes) -> Tensor:
    """The past's keys, then those of the call, then zeros, where each batch index has its own number of keys."""
    k = call.k
    if past is None:
        return new
    shape = (*new.shape[:2], sizes.length, new.shape[3])
    for axis in (0, 1, 3):
        k.require_equal(past.shape[axis], new.shape[axis], "a cache has the heads and the depth of the keys")
    room, zero = fn("max", past.shape[2], 1), E.const(0, "i64")

    def at(w: tuple[Ix, ...]) -> Expr:
        before = sizes.before.at((w[0], ix(0), ix(0), ix(0)))
        place = E.op("sub", E.index(w[2]), before)
        own = E.op("max", E.op("min", place, E.index(sizes.rows - 1)), zero)
        old = E.op("min", E.index(w[2]), E.index(room - 1))
        earlier = past.at((w[0], w[1], k.data_index(old, room), w[3]))
        later = new.at((w[0], w[1], k.data_index(own, sizes.rows), w[3]))
        either = E.select(E.op("lt", E.index(w[2]), before), earlier, later)
        return E.select(E.op("lt", place, E.index(sizes.rows)), either, E.const(0.0, "f32"))

    return k.copy(k.index_map(shape, new.dtype, at))


def _bias(call: Call, sizes: _Sizes) -> Tensor | None:
    window, given = call.int("local_window_size", -1), call.maybe(10)
    causal = banded(call, sizes.rows, sizes.length, sizes.before, window - 1 if window > 0 else -1, 0)
    if given is not None and given.shape[3] != sizes.length:
        call.k.require_equal(given.shape[3], sizes.length, "a bias covers all keys")
    return plus(call, causal, given)


def _sink(call: Call, heads: int) -> Tensor | None:
    sink = call.maybe(11)
    if sink is not None:
        return call.k.reshape(sink, (1, heads, 1, 1))
    return call.k.const(0.0, "f32", (1, 1, 1, 1)) if call.int("smooth_softmax", 0) else None


@dataclass(frozen=True)
class GroupedQueries:
    """A call: (batch, rows, heads * depth) operands, rotated where it asks for that."""

    query: Tensor
    key: Tensor
    value: Tensor
    sizes: _Sizes
    heads: int
    kv_heads: int
    scale: float
    softcap: float
    sink: Tensor | None


def grouped_queries(call: Call) -> GroupedQueries:
    if call.n_outputs > 3:
        raise Unsupported("scores as an output")
    if any(call.maybe(i) is not None for i in (12, 13)) or any(call.str(a, "NONE") != "NONE" for a in QUANTIZED):
        raise Unsupported("a quantized cache")
    heads, kv_heads = call.int("num_heads"), call.int("kv_num_heads")
    if heads <= 0 or kv_heads <= 0 or heads % kv_heads:
        raise Unsupported(f"{heads} heads of queries for {kv_heads} of keys")
    q, key, value = _operands(call)
    call.k.require_equal(q.shape[2] // heads * heads, q.shape[2], "heads must divide the hidden size")
    sizes = _sizes(call, q.shape[1])
    _check_caches(call, sizes, kv_heads, q.shape[2] // heads)
    if call.int("do_rotary", 0):
        q, key = _rotate(call, q, heads, sizes), _rotate(call, key, kv_heads, sizes)
    scale = call.float("scale", 0.0)
    if not scale:
        scale = 1 / math.sqrt(max((q.shape[2] // heads).const or 1, 1))
    return GroupedQueries(
        q, key, value, sizes, heads, kv_heads, scale, call.float("softcap", 0.0), _sink(call, heads),
    )  # fmt: skip


def _check_caches(call: Call, sizes: _Sizes, kv_heads: int, depth: Ix) -> None:
    for past in (call.maybe(3), call.maybe(4)):
        if past is not None:
            for axis, size in ((0, sizes.batch), (1, ix(kv_heads)), (3, depth)):
                call.k.require_equal(past.shape[axis], size, "a cache has the heads and the depth of the keys")


@op("GroupQueryAttention", domain=DOMAIN, kind="product", work=attention_work, reference=grouped_reference)
def group_query_attention(call: Call) -> list[Tensor | None]:
    made = grouped_queries(call)
    sizes, heads, kv_heads = made.sizes, made.heads, made.kv_heads
    queries, keys, values = (
        split_heads(call, x, n) for x, n in ((made.query, heads), (made.key, kv_heads), (made.value, kv_heads))
    )  # fmt: skip
    cache = Cache(_cached(call, call.maybe(3), keys, sizes), _cached(call, call.maybe(4), values, sizes), ix(0))
    scale = call.float("scale", 0.0) or None
    # Without a window or a given bias, nothing is masked in all rows but the zero padding behind the last key.
    zero_padded = call.int("local_window_size", -1) <= 0 and call.maybe(10) is None
    how = Scoring(
        scale, made.softcap, _bias(call, sizes), may_be_empty=False, sink=made.sink, zero_padded=zero_padded,
        zeros_for_nothing=False,
    )  # fmt: skip
    y = merge_heads(call, attend(call, queries, cache.key, cache.value, how).y)
    return requested(call, [y, cache.key, cache.value])
