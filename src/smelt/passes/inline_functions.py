"""Function calls -> their bodies.

Input: a model whose functions expand to a bounded number of nodes. Output: the model without those functions that can
be inlined. Invariant: a function stays when its opsets differ from the model's, or graphs are its parameters.
"""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from smelt.ir.verifier import verify_functions
from smelt.ir.walk import model_nodes, subgraphs
from smelt.passes.rewriter.outcome import Outcome


class InlineFunctions:
    """Inline model-local functions, so that passes and partition see their nodes."""

    def __call__(self, model: ir.Model) -> Outcome:
        changes: Counter[str] = Counter()
        if not model.functions:
            return Outcome(changes)
        verify_functions(model)
        before = len(model.functions)
        held_back = _unfit(model)
        InlinePass(criteria=lambda function: function.identifier() not in held_back)(model)
        changes["function inlined"] += before - len(model.functions)
        return Outcome(changes)


def _unfit(model: ir.Model) -> set[ir.OperatorIdentifier]:
    unfit = {name for name, function in model.functions.items() if _differs(model, function)}
    for node in model_nodes(model, functions=True):
        function = model.functions.get(node.op_identifier())
        if function is None:
            continue
        too_many = len(node.inputs) > len(function.inputs) or len(node.outputs) > len(function.outputs)
        if too_many or any(True for _ in subgraphs(node)):
            unfit.add(node.op_identifier())
    return unfit


def _differs(model: ir.Model, function: ir.Function) -> bool:
    return any(
        model.opset_imports.get(domain, version) != version for domain, version in function.opset_imports.items()
    )
