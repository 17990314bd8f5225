"""The arithmetic of LayerNorm -> LayerNormalization.

Input: a float32 model of opset 17 on, with shapes. Output: the model where (x - mean) / sqrt(var + eps) * scale + bias
over the last axis is one node. Invariant: only chains whose result has no other user are replaced.
"""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from smelt.ir.walk import model_graphs
from smelt.passes._normalization import mean_source, normalized_source, square_source, vector_operand
from smelt.passes.outcome import Outcome
from smelt.passes.surgery import ONNX, Names, drop_node, insert_node, is_op, only_user, replace_value

SINCE = 17


class RecomposeLayerNorm:
    """Find the division by the standard deviation and take scale and bias with it."""

    def __call__(self, model: ir.Model) -> Outcome:
        changes: Counter[str] = Counter()
        if model.opset_imports.get(ONNX, 0) < SINCE:
            return Outcome(changes)
        names = Names(model)
        for graph in model_graphs(model):
            for node in list(graph):
                if node.graph is not None and _recompose(node, names):
                    changes["LayerNormalization recomposed"] += 1
        return Outcome(changes)


def _recompose(node: ir.Node, names: Names) -> bool:
    found = _match(node)
    if found is None:
        return False
    source, epsilon = found
    normal = node.outputs[0]
    scaling = only_user(normal)
    scale = vector_operand(scaling, normal) if scaling is not None and is_op(scaling, "Mul") else None
    if scaling is None or scale is None:
        return False
    shifting = only_user(scaling.outputs[0])
    bias = vector_operand(shifting, scaling.outputs[0]) if shifting is not None and is_op(shifting, "Add") else None
    root = shifting if shifting is not None and bias is not None else scaling
    inputs = [source, scale] if bias is None else [source, scale, bias]
    attributes = (ir.AttrInt64("axis", -1), ir.AttrFloat32("epsilon", epsilon))
    made = insert_node(root, "LayerNormalization", inputs, root.outputs[0], names, attributes=attributes)
    if not replace_value(root.outputs[0], made.outputs[0]):
        drop_node(made)
        return False
    drop_node(root)
    return True


def _match(node: ir.Node) -> tuple[ir.Value, float] | None:
    found = normalized_source(node)
    if found is None:
        return None
    centered, variance, epsilon = found
    subtract = centered.producer()
    if subtract is None or not is_op(subtract, "Sub"):
        return None
    source, mean = subtract.inputs
    if source is None or source.dtype != ir.DataType.FLOAT or mean_source(mean) is not source:
        return None
    deviation = square_source(mean_source(variance))
    same = deviation is centered or _is_same_difference(deviation, source, mean)
    return (source, epsilon) if same else None


def _is_same_difference(value: ir.Value | None, source: ir.Value, mean: ir.Value | None) -> bool:
    node = value.producer() if value is not None else None
    return node is not None and is_op(node, "Sub") and node.inputs[0] is source and node.inputs[1] is mean
