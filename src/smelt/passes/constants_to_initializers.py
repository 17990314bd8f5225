"""Constant nodes -> initializers.

Input: a model. Output: the model without Constant nodes, except those that are graph outputs themselves.
"""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from smelt.ir.walk import model_nodes
from smelt.passes.rewriter.outcome import Outcome


class ConstantsToInitializers:
    """Make every Constant node an initializer of its graph: constants then have one form."""

    def __call__(self, model: ir.Model) -> Outcome:
        before = _constants(model)
        LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
        return Outcome(Counter({"constant lifted": before - _constants(model)}))


def _constants(model: ir.Model) -> int:
    return sum(node.op_type == "Constant" for node in model_nodes(model))
