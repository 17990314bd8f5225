"""Scaled dot-product attention as the fused CPU op computes it, and its gradient.

Input: `_scaled_dot_product_flash_attention_for_cpu` and its backward. Output: the result with the logarithm of each
row's sum, and the gradients of query, key and value. Invariant: a row that is masked altogether gives zeros and no
gradient; queries that share a key head (grouped heads) add up in its gradient.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from smelt.export.call import Call
from smelt.export.dtypes import BOOL, INT64
from smelt.export.records import Refused
from smelt.export.registry import converter

Value = ir.Value


@converter("aten::_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    call: Call, query: Value, key: Value, value: Value, dropout_p: float = 0.0, is_causal: bool = False,
    attn_mask: Value | None = None, scale: float | None = None,
) -> tuple[Value, Value]:  # fmt: skip
    if dropout_p:
        raise Refused("attention with dropout")
    keys, values = _shared(call, query, key), _shared(call, query, value)
    scores = _scores(call, query, keys, is_causal, attn_mask, scale)
    weights = call.op("Softmax", scores, axis=-1)
    if is_causal or attn_mask is not None:
        weights = _where_any(call, scores, weights)
    total = call.op("ReduceLogSumExp", scores, [-1], keepdims=0)
    return call.op("MatMul", weights, values), total


@converter("aten::_scaled_dot_product_flash_attention_for_cpu_backward")
def flash_attention_backward(
    call: Call, grad_out: Value, query: Value, key: Value, value: Value, out: Value, logsumexp: Value,
    dropout_p: float, is_causal: bool, attn_mask: Value | None = None, scale: float | None = None,
) -> tuple[Value, Value, Value]:  # fmt: skip
    if dropout_p:
        raise Refused("attention with dropout")
    keys, values = _shared(call, query, key), _shared(call, query, value)
    scores = _scores(call, query, keys, is_causal, attn_mask, scale)
    total = call.op("Unsqueeze", call.cast(logsumexp, scores.dtype), [-1])
    weights = call.op("Exp", call.op("Sub", scores, total))
    if is_causal or attn_mask is not None:
        weights = _where_any(call, scores, weights)
    of_values = call.op("MatMul", _transposed(call, weights), grad_out)
    of_weights = call.op("MatMul", grad_out, _transposed(call, values))
    shift = call.op("ReduceSum", call.op("Mul", grad_out, out), [-1], keepdims=1)
    of_scores = call.op("Mul", weights, call.op("Sub", of_weights, shift))
    of_scores = call.op("Mul", of_scores, call.scalar(_factor(call, query, scale), query.dtype))
    of_query = call.op("MatMul", of_scores, keys)
    of_keys = call.op("MatMul", _transposed(call, of_scores), query)
    return of_query, _summed_heads(call, of_keys, key), _summed_heads(call, of_values, value)


def _factor(call: Call, query: Value, scale: float | None) -> Any:
    if scale is not None:
        return scale
    width = call.dim(query, -1)
    if not isinstance(width, int):
        raise Refused("attention over heads of unknown width")
    return 1.0 / math.sqrt(width)


def _transposed(call: Call, value: Value) -> Value:
    return call.op("Transpose", value, perm=[0, 1, 3, 2])


def _scores(call: Call, query: Value, key: Value, causal: bool, mask: Value | None, scale: float | None) -> Value:
    scaled = call.op("Mul", query, call.scalar(_factor(call, query, scale), query.dtype))
    scores = call.op("MatMul", scaled, _transposed(call, key))
    blocked = call.scalar(-np.inf, query.dtype)
    if causal:
        ones = call.filled([call.dim(query, -2), call.dim(key, -2)], 1, INT64)
        scores = call.op("Where", call.cast(call.op("Trilu", ones, upper=0), BOOL), scores, blocked)
    if mask is None:
        return scores
    if mask.dtype == BOOL:
        return call.op("Where", mask, scores, blocked)
    return call.op("Add", scores, call.cast(mask, scores.dtype))


def _where_any(call: Call, scores: Value, weights: Value) -> Value:
    """Zeros instead of NaN where a whole row is masked."""
    top = call.op("ReduceMax", scores, [-1], keepdims=1)
    empty = call.op("IsInf", top, detect_positive=0)
    return call.op("Where", empty, call.scalar(0.0, scores.dtype), weights)


def _shared(call: Call, query: Value, value: Value) -> Value:
    """Heads of keys and values repeated for the queries that share them."""
    heads, groups = call.dim(query, 1), call.dim(value, 1)
    if heads == groups:
        return value
    batch, _, length, width = call.all_dims(value)
    split = call.reshape(value, [batch, groups, 1, length, width])
    repeated = call.expand(split, [batch, groups, heads // groups, length, width])
    return call.reshape(repeated, [batch, heads, length, width])


def _summed_heads(call: Call, gradient: Value, shared: Value) -> Value:
    heads, groups = call.dim(gradient, 1), call.dim(shared, 1)
    if heads == groups:
        return gradient
    batch, _, length, width = call.all_dims(shared)
    split = call.reshape(gradient, [batch, groups, heads // groups, length, width])
    return call.op("ReduceSum", split, [2], keepdims=0)
