"""Dead code: nodes, initializers and functions that no output needs.

Input: a model. Output: the model without them. Invariant: graph inputs, outputs and opset imports stay.
"""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedFunctionsPass

from smelt.ir.walk import model_graphs, nested_graphs, subgraphs
from smelt.passes.rewriter.outcome import Outcome


class RemoveUnused:
    """Remove what does not contribute to an output, users before producers."""

    def __call__(self, model: ir.Model) -> Outcome:
        changes: Counter[str] = Counter()
        graphs = list(model_graphs(model))
        # Inner graphs first, so that what only a dead body captured is dead as well.
        for graph in reversed(graphs):
            for node in reversed(list(graph)):
                if not any(value.uses() or value.is_graph_output() for value in node.outputs):
                    _forget(node, graph)
                    changes["node removed"] += 1
            for name, value in list(graph.initializers.items()):
                if not (value.uses() or value.is_graph_output() or value.is_graph_input()):
                    del graph.initializers[name]
                    changes["initializer removed"] += 1
        before = len(model.functions)
        RemoveUnusedFunctionsPass()(model)
        changes["function removed"] += before - len(model.functions)
        return Outcome(changes)


def _forget(node: ir.Node, graph: ir.Graph) -> None:
    """Remove the node, and the uses that its bodies make of outer values."""
    for body in subgraphs(node):
        for inner_graph in nested_graphs(body):
            for inner in inner_graph:
                inner.resize_inputs(0)
    graph.remove(node, safe=True)
