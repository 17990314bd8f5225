"""Types and shapes of intermediate values.

Input: a model whose value_info may be absent or wrong. Output: shapes derived from the graph inputs; a declared shape
survives only where nothing can be derived. Invariant: a shape declared for a graph input or output stays as it is.
"""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from smelt.ir.walk import model_graphs
from smelt.passes.outcome import Outcome


class InferShapes:
    """Derive shapes anew, so that a wrong declaration cannot lead a later pass to a wrong answer."""

    def __call__(self, model: ir.Model) -> Outcome:
        declared = _declared(model)
        for value in declared:
            value.shape = None
        border = _border(model)
        ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)
        for value, shape in border.items():
            value.shape = shape
        changes: Counter[str] = Counter()
        for value, shape in declared.items():
            if value.shape is None:
                value.shape = shape
            elif value.shape != shape:
                changes["shape derived"] += 1
        return Outcome(changes)


def _declared(model: ir.Model) -> dict[ir.Value, ir.Shape | None]:
    produced = (value for graph in model_graphs(model) for node in graph for value in node.outputs)
    return {value: value.shape for value in produced if not value.is_graph_output()}


def _border(model: ir.Model) -> dict[ir.Value, ir.Shape]:
    values = (value for graph in model_graphs(model) for value in (*graph.inputs, *graph.outputs))
    return {value: value.shape.copy() for value in values if value.shape is not None}
