"""The arithmetic of RMSNorm -> RMSNormalization.

Input: a float32 model of opset 23 on, with shapes. Output: the model where x / sqrt(mean(x^2) + eps) * scale over the
last axis is one node. Invariant: only chains whose result has no other user are replaced.
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
from smelt.passes.rewriter.surgery import Names

SINCE = 23


class RecomposeRmsNorm:
    """Find the division by the root of the mean square and take the scale with it."""

    def __call__(self, model: ir.Model) -> Outcome:
        return recompose_all(model, "RMSNormalization", SINCE, _recompose)


def _recompose(node: ir.Node, names: Names) -> bool:
    found = normalized_source(node)
    if found is None or found[0].dtype != ir.DataType.FLOAT or square_source(mean_source(found[1])) is not found[0]:
        return False
    scaled = scaled_by(node.outputs[0], "Mul")
    if scaled is None:
        return False
    scaling, scale = scaled
    return take_the_place(scaling, "RMSNormalization", [found[0], scale], found[2], names)
