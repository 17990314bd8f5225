"""Initializers of old models.

Input: a model of IR version 3, where every initializer has to be a graph input too. Output: the same model as IR
version 4. Invariant: ONNX Runtime never lets callers override these, so the model's real inputs stay as they are.
"""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from smelt.ir.walk import model_graphs
from smelt.passes.rewriter.outcome import Outcome


class LegacyInitializers:
    """Take initializers out of the graph inputs of IR version 3 models."""

    def __call__(self, model: ir.Model) -> Outcome:
        changes: Counter[str] = Counter()
        if model.ir_version >= 4:
            return Outcome(changes)
        for graph in model_graphs(model):
            kept = [value for value in graph.inputs if not value.is_initializer()]
            changes["initializer taken out of the inputs"] += len(graph.inputs) - len(kept)
            graph.inputs[:] = kept
        model.ir_version = 4
        return Outcome(changes)
