"""Normalizations of ONNX Runtime's own domain: residual and embedding sums with the normalization that follows them.

Input: as their schemas say. Output: also the sums, when a node asks for them. Invariant: the sum that is given out is
the one that was normalized.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from smelt.ir.kernel import Builder, Tensor, Unsupported, fn, ix
from smelt.ir.kernel import expr as E
from smelt.ops.normalization import (
    add,
    by_root_mean_square,
    layer_norm_reference,
    onto,
    requested,
    rms_norm_reference,
    scale_and_shift,
    standardize,
)
from smelt.ops.registry import Call, op

Array = np.ndarray[Any, Any]
DOMAIN = "com.microsoft"


def _residual(k: Builder, x: Tensor, skip: Tensor, bias: Tensor | None) -> Tensor:
    total = add(k, x, onto(k, skip, x.shape))
    return total if bias is None else add(k, total, onto(k, bias, x.shape))


def _residual_reference(x: Array, skip: Array, bias: Array | None) -> Array:
    return x + skip if bias is None else x + skip + bias


def skip_layer_norm_reference(
    x: Array, skip: Array, scale: Array, shift: Array | None = None, bias: Array | None = None, epsilon: float = 1e-12
) -> tuple[Array, ...]:
    total = _residual_reference(x, skip, bias)
    return (*layer_norm_reference(total, scale, shift, epsilon=epsilon), total)


@op("SkipLayerNormalization", domain=DOMAIN, kind="normalization", flops=9, reference=skip_layer_norm_reference)
def skip_layer_norm(call: Call) -> list[Tensor | None]:
    k = call.k
    total = _residual(k, call.x(), call.x(1), call.maybe(4))
    done = standardize(k, total, [total.rank - 1], call.float("epsilon", 1e-12))
    y = scale_and_shift(k, done.y, call.x(2), call.maybe(3))
    return requested(call, [y, k.cast(done.mean, "f32"), k.cast(done.inverse, "f32"), total])


def skip_rms_norm_reference(
    x: Array, skip: Array, scale: Array, bias: Array | None = None, epsilon: float = 1e-12
) -> tuple[Array, ...]:
    total = _residual_reference(x, skip, bias)
    y, inverse = rms_norm_reference(total, scale, epsilon=epsilon)
    return y, np.zeros_like(inverse), inverse, total


@op("SkipSimplifiedLayerNormalization", domain=DOMAIN, kind="normalization", flops=6, reference=skip_rms_norm_reference)
def skip_rms_norm(call: Call) -> list[Tensor | None]:
    """No mean is taken; a node that asks for it gets zeros, as from ONNX Runtime."""
    k = call.k
    total = _residual(k, call.x(), call.x(1), call.maybe(3))
    y, inverse = by_root_mean_square(k, total, [total.rank - 1], call.float("epsilon", 1e-12))
    mean = k.const(0, "f32", inverse.shape)
    return requested(call, [scale_and_shift(k, y, call.x(2), None), mean, k.cast(inverse, "f32"), total])


def embed_layer_norm_reference(
    ids: Array, segments: Array | None, words: Array, positions: Array, segment_table: Array | None, scale: Array,
    shift: Array, mask: Array | None = None, position_ids: Array | None = None, epsilon: float = 1e-12, **_: Any,
) -> tuple[Array, ...]:  # fmt: skip
    rows = positions[: ids.shape[1]] if position_ids is None else positions[position_ids]
    total = words[ids] + rows
    if segments is not None and segment_table is not None:
        total = total + segment_table[segments]
    count = np.zeros(len(ids), np.int32) if mask is None else (mask == 1).sum(axis=1, dtype=np.int32)
    return layer_norm_reference(total, scale, shift, epsilon=epsilon)[0], count, total


@op("EmbedLayerNormalization", domain=DOMAIN, kind="normalization", reference=embed_layer_norm_reference)
def embed_layer_norm(call: Call) -> list[Tensor | None]:
    k, ids = call.k, call.x()
    if ids.rank != 2:
        raise Unsupported(f"input_ids of rank {ids.rank}")
    total = add(k, k.gather(call.x(2), ids, 0), _position_rows(call, ids))
    segments, table = call.maybe(1), call.maybe(4)
    if segments is not None and table is not None:
        total = add(k, total, k.gather(table, onto(k, segments, ids.shape), 0))
    done = standardize(k, total, [2], call.float("epsilon", 1e-12))
    y = scale_and_shift(k, done.y, call.x(5), call.x(6))
    return requested(call, [y, _mask_lengths(call, ids), total])


def _position_rows(call: Call, ids: Tensor) -> Tensor:
    k, table, given = call.k, call.x(3), call.maybe(8)
    if given is not None:
        return k.gather(table, onto(k, given, ids.shape), 0)
    k.require_equal(fn("lt", table.shape[0], ids.shape[1]), 0, "the sequence is longer than the position table")
    return k.view(table, (*ids.shape, table.shape[1]), lambda w: [w[1], w[2]])


def _mask_lengths(call: Call, ids: Tensor) -> Tensor:
    """How many positions of each row are on."""
    k, mask = call.k, call.maybe(7)
    if mask is None:
        return k.const(0, "i32", (ids.shape[0],))
    on = k.map(lambda m: E.cast(E.op("eq", m, E.const(1, m.dtype)), "i32"), mask)
    return k.view(k.reduce("sum", on, [1]), (mask.shape[0],), lambda w: [w[0], ix(0)])
