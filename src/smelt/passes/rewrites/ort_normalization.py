"""Normalizations -> ONNX Runtime's SkipLayerNormalization and SimplifiedLayerNormalization.

Input: LayerNormalization over the last axis of a sum of two equal shapes, float32, rank 3; the arithmetic of RMSNorm in
a model whose opset has no node for it. Output: one node for either. Invariant: shapes are the same by name, scales are
vectors of the last axis, so nothing else is broadcast.
"""

from __future__ import annotations

import onnx_ir as ir

from smelt.passes._normalization import mean_source, normalized_source, square_source, vector_operand
from smelt.passes.recompose_rms_norm import SINCE as RMS_NORM_SINCE
from smelt.passes.rewriter.rules import Rewrite, Rule
from smelt.passes.rewriter.surgery import input_at, int_attribute, is_op, only_user

_CONTRIB = "com.microsoft"
_RANK = 3


def _skip_layer_norm(node: ir.Node, rewrite: Rewrite) -> ir.Value | None:
    """LayerNormalization of a sum -> SkipLayerNormalization"""
    total, gamma, beta = node.inputs[0], input_at(node, 1), input_at(node, 2)
    add = total.producer() if total is not None else None
    if total is None or add is None or not is_op(add, "Add") or len(node.outputs) != 1 or gamma is None:
        return None
    left, right = add.inputs
    if left is None or right is None or not _alike(left, right) or int_attribute(node, "axis", -1) not in (-1, 2):
        return None
    epsilon = node.attributes["epsilon"].as_float() if "epsilon" in node.attributes else 1e-5
    if total.is_graph_output() or len(total.uses()) > 1:
        return None  # the sum is wanted too: as a fourth output it would have to come before its first reader
    return rewrite.op(
        "SkipLayerNormalization", left, right, gamma, beta, domain=_CONTRIB, like=node.outputs[0], epsilon=epsilon
    )


def _rms_norm(node: ir.Node, rewrite: Rewrite) -> ir.Value | None:
    """x / sqrt(mean(x^2) + epsilon) * scale -> SimplifiedLayerNormalization, before opset 23"""
    if rewrite.opset >= RMS_NORM_SINCE:
        return None
    for value in node.inputs:
        inner = value.producer() if value is not None and only_user(value) is node else None
        found = normalized_source(inner) if inner is not None else None
        scale = vector_operand(node, value) if value is not None else None
        if found is None or scale is None:
            continue
        source, square, epsilon = found
        if source.dtype == ir.DataType.FLOAT and square_source(mean_source(square)) is source:
            like = node.outputs[0]
            return rewrite.op("SimplifiedLayerNormalization", source, scale, like=like, axis=-1, epsilon=epsilon)
    return None


def _alike(left: ir.Value, right: ir.Value) -> bool:
    if left.shape is None or right.shape is None or left.dtype != ir.DataType.FLOAT:
        return False
    named = all(isinstance(size, int) or size.value for size in left.shape)
    return named and left.shape == right.shape and left.shape.rank() == _RANK


ORT_NORMALIZATION = (
    Rule("ort-skip-layer-norm", _skip_layer_norm, frozenset(("LayerNormalization",)), ("ort",)),
    Rule("ort-rms-norm", _rms_norm, frozenset(("Mul",)), ("ort",)),
)
