"""The arithmetic of RMSNorm -> RMSNormalization.

Input: a float32 model of opset 23 on, with shapes. Output: the model where x / sqrt(mean(x^2) + eps) * scale over the
last axis is one node. Invariant: only chains whose result has no other user are replaced.
"""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from smelt.ir.walk import model_graphs
from smelt.passes._normalization import mean_source, normalized_source, square_source, vector_operand
from smelt.passes.outcome import Outcome
from smelt.passes.surgery import ONNX, Names, drop_node, insert_node, is_op, only_user, replace_value

SINCE = 23


class RecomposeRmsNorm:
    """Find the division by the root of the mean square and take the scale with it."""

    def __call__(self, model: ir.Model) -> Outcome:
        changes: Counter[str] = Counter()
        if model.opset_imports.get(ONNX, 0) < SINCE:
            return Outcome(changes)
        names = Names(model)
        for graph in model_graphs(model):
            for node in list(graph):
                if node.graph is not None and _recompose(node, names):
                    changes["RMSNormalization recomposed"] += 1
        return Outcome(changes)


def _recompose(node: ir.Node, names: Names) -> bool:
    found = normalized_source(node)
    if found is None or found[0].dtype != ir.DataType.FLOAT or square_source(mean_source(found[1])) is not found[0]:
        return False
    source, _, epsilon = found
    scaling = only_user(node.outputs[0])
    scale = vector_operand(scaling, node.outputs[0]) if scaling is not None and is_op(scaling, "Mul") else None
    if scaling is None or scale is None:
        return False
    attributes = (ir.AttrInt64("axis", -1), ir.AttrFloat32("epsilon", epsilon))
    like = scaling.outputs[0]
    made = insert_node(scaling, "RMSNormalization", [source, scale], like, names, attributes=attributes)
    if not replace_value(like, made.outputs[0]):
        drop_node(made)
        return False
    drop_node(scaling)
    return True
