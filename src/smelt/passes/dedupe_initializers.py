"""Equal small initializers -> one.

Input: a model. Output: the model where small initializers of one graph with the same type, shape and bytes are one
value. Invariant: initializers that are graph inputs or outputs stay apart.
"""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from smelt.ir.walk import model_graphs
from smelt.passes.rewriter.outcome import Outcome
from smelt.passes.rewriter.surgery import tensor_of

MAX_SIZE = 1024


class DedupeInitializers:
    """Merge equal constants, which lets equal nodes be recognized as such."""

    def __call__(self, model: ir.Model) -> Outcome:
        changes: Counter[str] = Counter()
        for graph in model_graphs(model):
            seen: dict[tuple[ir.DataType, tuple[int, ...], bytes], ir.Value] = {}
            for name, value in list(graph.initializers.items()):
                tensor = tensor_of(value)
                if tensor is None or value.is_graph_output() or tensor.size > MAX_SIZE:
                    continue
                if tensor.dtype == ir.DataType.STRING:
                    continue
                first = seen.setdefault((tensor.dtype, tuple(tensor.shape.numpy()), tensor.tobytes()), value)
                if first is not value:
                    value.replace_all_uses_with(first)
                    del graph.initializers[name]
                    changes["initializer merged"] += 1
        return Outcome(changes)
