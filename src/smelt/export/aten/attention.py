"""Scaled dot-product attention.

Input: calls. Output: values. Invariant: MatMul, Softmax, MatMul, with the scale on the scores: the form that attention
kernels recognize. Fully masked rows follow torch.
"""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

from smelt.export.call import Call
from smelt.export.dtypes import BOOL, INT64
from smelt.export.records import Refused
from smelt.export.registry import converter

Value = ir.Value


@converter("aten::scaled_dot_product_attention")
def scaled_dot_product_attention(
    call: Call, query: Value, key: Value, value: Value, attn_mask: Value | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: Any = None, enable_gqa: bool = False,
) -> Value:  # fmt: skip
    if dropout_p:
        raise Refused("attention with dropout is random")
    if enable_gqa:
        key, value = _repeated(call, query, key), _repeated(call, query, value)
    return attended(call, query, key, value, attn_mask, is_causal, scale)


def attended(
    call: Call, query: Value, key: Value, value: Value, mask: Value | None, is_causal: bool, scale: Any
) -> Value:
    scores = masked_scores(call, query, key, mask, is_causal, scale)
    result = call.op("MatMul", call.op("Softmax", scores, axis=-1), value)
    if mask is None or mask.dtype != BOOL:
        return result
    # A row that masks everything attends to nothing, as in torch; Softmax alone gives NaN there.
    return call.op("Where", _some(call, mask), result, call.scalar(0, result.dtype))


def _some(call: Call, mask: Value) -> Value:
    """Per row: whether anything is left."""

    def make() -> Value:
        return call.cast(call.op("ReduceMax", call.cast(mask, ir.DataType.INT32), [-1], keepdims=1), BOOL)

    return call.builder.remember(("some", mask), make)


def masked_scores(call: Call, query: Value, key: Value, mask: Value | None, is_causal: bool, scale: Any) -> Value:
    """Scaled products of queries and keys, with what is masked out at -inf."""
    rank = call.rank(key)
    transposed = call.op("Transpose", key, perm=[*range(rank - 2), rank - 1, rank - 2])
    scores = call.op("MatMul", query, transposed)
    factor = scale if scale is not None else _default_scale(call, query)
    scores = call.op("Mul", scores, call.scalar(factor, query.dtype))
    if is_causal:
        mask = _causal(call, call.dim(query, -2), call.dim(key, -2))
    if mask is None:
        return scores
    if mask.dtype == BOOL:
        return call.op("Where", mask, scores, call.scalar(float("-inf"), query.dtype))
    return call.op("Add", scores, call.cast(mask, query.dtype))


def _default_scale(call: Call, query: Value) -> Any:
    size = call.dim(query, -1)
    if isinstance(size, int):
        return 1.0 / math.sqrt(size)
    root = call.op("Sqrt", call.scalar(size, query.dtype))
    return call.op("Reciprocal", root)


def _causal(call: Call, queries: Any, keys: Any) -> Value:
    """True on and below the diagonal that starts in the upper left corner."""
    key = ("causal", str(queries), str(keys))

    def make() -> Value:
        rows = call.op("Unsqueeze", _counted(call, queries), [1])
        return call.op("GreaterOrEqual", rows, _counted(call, keys))

    return call.builder.remember(key, make)


def _counted(call: Call, size: Any) -> Value:
    if isinstance(size, int) and size <= 4096:
        return call.constant(list(range(size)), INT64)
    return call.op("Range", call.scalar(0, INT64), call.scalar(size, INT64), call.scalar(1, INT64), shape=[None])


def _repeated(call: Call, query: Value, shared: Value) -> Value:
    """Key or value heads, each repeated for the queries that share it."""
    heads, have = call.dim(query, -3), call.dim(shared, -3)
    if heads == have:
        return shared
    if not (isinstance(heads, int) and isinstance(have, int)):
        raise Refused("grouped heads whose number is known only at run time")
    dims = call.all_dims(shared)
    axis = len(dims) - 2
    wide = call.op("Unsqueeze", shared, [axis])
    grown = call.expand(wide, [*dims[:axis], heads // have, *dims[axis:]])
    return call.reshape(grown, [*dims[:-3], heads, *dims[-2:]])


@converter("aten::_scaled_dot_product_attention_math")
def attention_math(
    call: Call, query: Value, key: Value, value: Value, attn_mask: Value | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: Any = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    if dropout_p:
        raise Refused("attention with dropout is random")
    if enable_gqa:
        key, value = _repeated(call, query, key), _repeated(call, query, value)
    if attn_mask is not None and attn_mask.dtype == BOOL:
        raise Refused("weights of rows that mask everything")
    weights = call.op("Softmax", masked_scores(call, query, key, attn_mask, is_causal, scale), axis=-1)
    return call.op("MatMul", weights, value), weights
