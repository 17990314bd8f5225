"""Attention of ONNX Runtime's own domain: heads side by side, biases of the projections, caches.

Input: as their schemas say. Output: (batch, length, heads * depth), and the caches when a node asks for them.
Invariant: masks add a large finite number where stock ONNX Runtime adds one, so that a row of nothing but masked keys
weighs them all alike, as there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from smelt.ir.kernel import Ix, Tensor, Unsupported, ix
from smelt.ir.kernel import expr as E

from .attention import Cache, Scoring, attend, banded, gate, merge_heads, plus, split_heads, with_past
from .normalization import add, onto, requested
from .product import times_operand
from .registry import Call, op
from .rotary import by_head, rotated, rows_of
from .work import any_attention_work, attention_work

Array = np.ndarray[Any, Any]
DOMAIN = "com.microsoft"
LOWEST = -3.4028234663852886e38
MASKED = -10000.0


# references


def attend_reference(q: Array, key: Array, value: Array, scale: float, bias: Array | None) -> Array:
    scores = q @ np.swapaxes(key, -1, -2) * (scale or 1 / np.sqrt(q.shape[-1]))
    scores = scores if bias is None else scores + bias
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    made = powers / powers.sum(axis=-1, keepdims=True) @ value
    return made.transpose(0, 2, 1, 3).reshape(made.shape[0], made.shape[2], -1)


def _heads_reference(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def _bias_reference(
    rows: int, length: int, before: int, mask: Array | None, given: Array | None, unidirectional: int, mask_value: float
) -> Array:
    bias: Array = np.zeros((1, 1, rows, length)) if given is None else given
    if mask is not None and mask.ndim == 1:
        bias = bias + np.where(np.arange(length) < mask[:, None, None, None], 0, mask_value)
    elif mask is not None:
        bias = bias + np.where(mask > 0, 0, mask_value).reshape(len(mask), 1, -1, length)
    if unidirectional:
        bias = bias + np.where(np.arange(length) <= np.arange(rows)[:, None] + before, 0, LOWEST)
    return bias


def multi_head_reference(
    query: Array, key: Array, value: Array, bias: Array | None = None,
    mask: Array | None = None, given: Array | None = None, past_key: Array | None = None,
    past_value: Array | None = None, *_: Any, num_heads: int = 1, scale: float = 0.0, unidirectional: int = 0,
    mask_filter_value: float = MASKED, **__: Any,
) -> tuple[Array, ...]:  # fmt: skip
    q, k, v = _operands_reference(query, key, value, bias, num_heads)
    before = 0 if past_key is None else past_key.shape[2]
    if past_key is not None and past_value is not None:
        k, v = np.concatenate([past_key, k], 2), np.concatenate([past_value, v], 2)
    masks = _bias_reference(q.shape[2], k.shape[2], before, mask, given, unidirectional, mask_filter_value)
    return attend_reference(q, k, v, scale, masks), k, v


def _operands_reference(
    query: Array, key: Array, value: Array, bias: Array | None, heads: int
) -> tuple[Array, Array, Array]:
    first = query.shape[2]
    q = _heads_reference(query if bias is None else query + bias[:first], heads)
    if key.ndim == 4:
        return q, key, value
    second = first + key.shape[2]
    key, value = (key, value) if bias is None else (key + bias[first:second], value + bias[second:])
    return q, _heads_reference(key, heads), _heads_reference(value, heads)


def packed_reference(
    x: Array, weights: Array, bias: Array | None = None, mask: Array | None = None, past: Array | None = None,
    given: Array | None = None, *_: Any, num_heads: int = 1, scale: float = 0.0, unidirectional: int = 0,
    qkv_hidden_sizes: Any = (), mask_filter_value: float = MASKED, **__: Any,
) -> tuple[Array, ...]:  # fmt: skip
    whole = x @ weights if bias is None else x @ weights + bias
    sizes = list(qkv_hidden_sizes) or [whole.shape[2] // 3] * 3
    q, k, v = (_heads_reference(p, num_heads) for p in np.split(whole, np.cumsum(sizes)[:2], axis=2))
    before = 0 if past is None else past.shape[3]
    if past is not None:
        k, v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    masks = _bias_reference(q.shape[2], k.shape[2], before, mask, given, unidirectional, mask_filter_value)
    made = attend_reference(q, k, v, scale, masks)
    return (made, np.stack([k, v])) if k.shape == v.shape else (made,)


def rotary_reference(
    x: Array, places: Array, cos: Array, sin: Array, *, num_heads: int = 0, interleaved: int = 0, **_: Any
) -> Array:
    length = x.shape[1] if x.ndim == 3 else x.shape[2]
    rows = np.asarray([[int(places[0]) + i for i in range(length)]]) if places.ndim == 1 else places
    half = cos.shape[1]
    heads = num_heads or (x.shape[2] // (2 * half) if x.ndim == 3 else 0)
    by_length = x.reshape(*x.shape[:2], heads, -1) if x.ndim == 3 else x.transpose(0, 2, 1, 3)
    made = by_length.copy()
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(half), slice(half, 2 * half))
    )
    c, s = cos[rows][:, :, None], sin[rows][:, :, None]
    made[..., first] = by_length[..., first] * c - by_length[..., second] * s
    made[..., second] = by_length[..., first] * s + by_length[..., second] * c
    return made.reshape(x.shape) if x.ndim == 3 else made.transpose(0, 2, 1, 3)


# what scores are biased by


def _key_mask(call: Call, mask: Tensor, batch: Ix, rows: Ix, length: Ix) -> Tensor:
    """Numbers of keys by batch, or flags of (batch, keys) or (batch, queries, keys), as a bias of four axes."""
    k, mask_value = call.k, call.float("mask_filter_value", MASKED)
    k.require_equal(mask.shape[0], batch, "a mask has a row for each batch index")
    zero = E.const(0, mask.dtype)
    if mask.rank == 1:
        count = k.reshape(k.cast(mask, "i64"), (batch, 1, 1, 1))
        allowed = k.map(lambda j, n: E.op("lt", j, n), k.iota((1, length), 1), count, dtype="b")
        return gate(call, allowed, mask_value)
    if mask.rank not in (2, 3):
        raise Unsupported("a mask of other than 1 to 3 axes")
    k.require_equal(mask.shape[-1], length, "a mask covers all keys")
    shape = (batch, 1, 1, length) if mask.rank == 2 else (batch, 1, rows, length)
    if mask.rank == 3:
        k.require_equal(mask.shape[1], rows, "a mask has a row for each query")
    return gate(call, k.map(lambda m: E.op("gt", m, zero), k.reshape(mask, shape), dtype="b"), mask_value)


def _bias(call: Call, q: Tensor, cache: Cache, mask: Tensor | None, given: Tensor | None) -> Tensor | None:
    batch, rows, length = q.shape[0], q.shape[2], cache.key.shape[2]
    causal = banded(call, rows, length, cache.before, -1, 0, LOWEST) if call.int("unidirectional", 0) else None
    masked = _key_mask(call, mask, batch, rows, length) if mask is not None else None
    return plus(call, masked, causal, given)


def _attended(call: Call, q: Tensor, cache: Cache, mask: Tensor | None, given: Tensor | None) -> Tensor:
    """Scale 0 is the usual one."""
    scale = call.float("scale", 0.0) or None
    how = Scoring(scale, 0.0, _bias(call, q, cache, mask, given), may_be_empty=False)
    return merge_heads(call, attend(call, q, cache.key, cache.value, how).y)


# the ops


@op("MultiHeadAttention", domain=DOMAIN, kind="product", work=attention_work, reference=multi_head_reference)
def multi_head_attention(call: Call) -> list[Tensor | None]:
    if call.n_outputs > 3:
        raise Unsupported("scores as an output")
    if any(call.maybe(i) is not None for i in (8, 9)):
        raise Unsupported("a cache that is shared between past and present")
    q, key, value = _operands(call)
    cache = with_past(call, key, value, call.maybe(6), call.maybe(7))
    y = _attended(call, q, cache, call.maybe(4), call.maybe(5))
    return requested(call, [y, cache.key, cache.value])


def _operands(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys, values as (batch, heads, length, depth), biases added."""
    heads, q, key, value, bias = call.int("num_heads"), call.x(0), call.maybe(1), call.maybe(2), call.maybe(3)
    if key is None or value is None or q.rank != 3:
        raise Unsupported("queries, keys and values packed into one tensor")
    q_heads = split_heads(call, _plus_part(call, q, bias, ix(0)), heads)
    if key.rank == 4:
        return (q_heads, key, value)
    second = q.shape[2] + key.shape[2]
    key_heads = split_heads(call, _plus_part(call, key, bias, q.shape[2]), heads)
    return (q_heads, key_heads, split_heads(call, _plus_part(call, value, bias, second), heads))


def _plus_part(call: Call, x: Tensor, bias: Tensor | None, start: Ix) -> Tensor:
    if bias is None:
        return x
    part = call.k.slice(bias, [start], [ix(1)], [x.shape[2]])
    return add(call.k, x, onto(call.k, part, x.shape))


@op("Attention", domain=DOMAIN, kind="product", work=any_attention_work, reference=packed_reference)
def packed_attention(call: Call) -> list[Tensor | None]:
    if call.int("do_rotary", 0) or call.int("past_present_share_buffer", 0) or call.maybe(6) is not None:
        raise Unsupported("a rotary embedding inside, or a cache that is shared between past and present")
    whole, bias = times_operand(call, call.x(0)), call.maybe(2)
    if bias is not None:
        whole = add(call.k, whole, onto(call.k, bias, whole.shape))
    return attention_of_projected(call, whole, call.maybe(3), call.maybe(4), call.maybe(5))


def attention_of_projected(
    call: Call, whole: Tensor, mask: Tensor | None, past: Tensor | None, given: Tensor | None = None
) -> list[Tensor | None]:
    """Queries, keys and values side by side in (batch, length, columns), perhaps behind those of the past."""
    k, heads = call.k, call.int("num_heads")
    sizes = [ix(s) for s in call.ints("qkv_hidden_sizes", ())] or [whole.shape[2] // 3] * 3
    starts = [ix(0), sizes[0], sizes[0] + sizes[1]]
    steps, zero = [ix(1)] * 3, ix(0)
    parts = [k.slice(whole, [zero, zero, s], steps, [*whole.shape[:2], n]) for s, n in zip(starts, sizes, strict=True)]
    q, key, value = (split_heads(call, p, heads) for p in parts)
    cache, present = _stacked(call, key, value, past)
    return requested(call, [_attended(call, q, cache, mask, given), present])


def _stacked(call: Call, key: Tensor, value: Tensor, past: Tensor | None) -> tuple[Cache, Tensor | None]:
    """Keys and values behind those of the past in one tensor of (2, batch, heads, length, depth)."""
    k = call.k
    if past is None:
        present = k.concat([k.unsqueeze(key, [0]), k.unsqueeze(value, [0])], 0) if call.n_outputs > 1 else None
        return Cache(key, value, ix(0)), present
    both = k.concat([k.unsqueeze(key, [0]), k.unsqueeze(value, [0])], 0)
    present = k.concat([past, both], 3)
    halves = [k.view(present, present.shape[1:], lambda w, i=i: (ix(i), *w)) for i in (0, 1)]
    return Cache(halves[0], halves[1], past.shape[3]), present


@op("RotaryEmbedding", domain=DOMAIN, kind="elementwise", flops=3, reference=rotary_reference)
def rotary_embedding(call: Call) -> Tensor:
    k, x, places, cos, sin = call.k, call.x(0), call.x(1), call.x(2), call.x(3)
    if call.float("scale", 1.0) != 1.0 or call.int("is_packed_batching", 0):
        raise Unsupported("a scaled or packed rotary embedding")
    length = x.shape[1] if x.rank == 3 else x.shape[2]
    if places.rank == 1:
        places = k.map(lambda s, i: E.op("add", s, i), k.reshape(places, (1, 1)), k.iota((1, length), 1))
    tables = [rows_of(call, table, places, length) for table in (cos, sin)]
    heads = call.int("num_heads", 0)
    if x.rank == 3 and heads <= 0:
        hidden, half = x.shape[2].const, cos.shape[1].const
        if hidden is None or half is None:
            raise Unsupported("the depth of a head is known only at run time")
        heads = hidden // (2 * half)
    return by_head(call, x, heads, lambda h: rotated(call, h, *tables, interleaved=bool(call.int("interleaved", 0))))
