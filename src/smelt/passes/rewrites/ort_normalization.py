"""Residual and normalization -> ONNX Runtime's SkipLayerNormalization.

Input: LayerNormalization over the last axis of a sum of two equal shapes, float32, rank 3. Output: one node that gives
both. Invariant: the shapes are the same by name, so nothing is broadcast.
"""

from __future__ import annotations

import onnx_ir as ir

from smelt.passes.rules import Rewrite, Rule
from smelt.passes.surgery import input_at, int_attribute, is_op

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


def _alike(left: ir.Value, right: ir.Value) -> bool:
    if left.shape is None or right.shape is None or left.dtype != ir.DataType.FLOAT:
        return False
    named = all(isinstance(size, int) or size.value for size in left.shape)
    return named and left.shape == right.shape and left.shape.rank() == _RANK


ORT_NORMALIZATION = (Rule("ort-skip-layer-norm", _skip_layer_norm, frozenset(("LayerNormalization",)), ("ort",)),)
