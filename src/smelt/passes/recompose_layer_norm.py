"""The arithmetic of LayerNorm -> LayerNormalization.

Input: a float32 model of opset 17 on, with shapes. Output: the model where (x - mean) / sqrt(var + eps) * scale + bias
over the last axis is one node. Invariant: only chains whose result has no other user are replaced.
"""

from __future__ import annotations

import onnx_ir as ir

from smelt.passes._normalization import (
    mean_source,
    normalized_source,
    recompose_all,
    scaled_by,
    square_source,
    take_the_place,
)
from smelt.passes.rewriter.outcome import Outcome
from smelt.passes.rewriter.surgery import Names, is_op

SINCE = 17


class RecomposeLayerNorm:
    """Find the division by the standard deviation and take scale and bias with it."""

    def __call__(self, model: ir.Model) -> Outcome:
        return recompose_all(model, "LayerNormalization", SINCE, _recompose)


def _recompose(node: ir.Node, names: Names) -> bool:
    found = _match(node)
    scaled = scaled_by(node.outputs[0], "Mul") if found is not None else None
    if found is None or scaled is None:
        return False
    (source, epsilon), (scaling, scale) = found, scaled
    shifted = scaled_by(scaling.outputs[0], "Add")
    if shifted is None:
        return take_the_place(scaling, "LayerNormalization", [source, scale], epsilon, names)
    shifting, bias = shifted
    return take_the_place(shifting, "LayerNormalization", [source, scale, bias], epsilon, names)


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
