"""Weights that a file lists among its graph inputs.

Input: a model of IR version 4 or later. Output: the same model, whose weights are constants. Invariant: nothing is
taken from the inputs unless the file lists every weight there, which is a habit of exporters (IR version 3 demanded
it); a model that lists only some initializers means them to be overridden, and keeps all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import onnx_ir as ir

from smelt.passes.rewriter.outcome import Outcome

_WEIGHTS: Final[Mapping[str, tuple[int, ...]]] = {
    "Conv": (1,), "ConvTranspose": (1,), "Gemm": (1,), "MatMul": (1,), "LSTM": (1, 2), "GRU": (1, 2), "RNN": (1, 2),
}  # fmt: skip


class FreezeInitializers:
    """Take initializers out of the graph inputs of files that list all their weights there."""

    sets = ("default",)

    def __call__(self, model: ir.Model) -> Outcome:
        graph = model.graph
        weights = set(_weights(graph))
        if not weights or not all(value.is_graph_input() for value in weights):
            return Outcome()
        kept = [value for value in graph.inputs if not value.is_initializer()]
        changes = Counter({"initializer taken out of the inputs": len(graph.inputs) - len(kept)})
        graph.inputs[:] = kept
        return Outcome(changes)


def _weights(graph: ir.Graph) -> Iterator[ir.Value]:
    for node in graph:
        for place in _WEIGHTS.get(node.op_type, ()) if not node.domain else ():
            value = node.inputs[place] if place < len(node.inputs) else None
            if value is not None and value.is_initializer():
                yield value
