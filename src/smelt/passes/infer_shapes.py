"""Types and shapes of intermediate values.

Input: a model whose value_info may be absent or wrong. Output: shapes derived from the graph inputs; a declared shape
survives only where nothing can be derived, and a declared name where derivation only invents one. Invariant: a declared
size never overrules a derived one; a shape declared for an input or output of the model stays as it is, and one of a
body learns only sizes that are numbers: a loop of no turns takes the sizes of its result from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

import onnx
import onnx_ir as ir

from smelt.ir.proto import from_proto, to_proto
from smelt.ir.walk import model_graphs, nested_graphs
from smelt.passes.outcome import Outcome

LARGE = 1024


class InferShapes:
    """Derive shapes anew, so that a wrong declaration cannot lead a later pass to a wrong answer."""

    def __call__(self, model: ir.Model) -> Outcome:
        declared = _declared(model)
        results = {value: value.shape for value in _results(model)}
        for value in (*declared, *results):
            value.shape = None
        inferred = _inferred(model)
        if inferred is not None:
            _merge(model, inferred)
        changes: Counter[str] = Counter()
        inputs = {dim for value in model.graph.inputs for dim in value.shape or ()}
        for value, shape in declared.items():
            value.shape = _settled(value.shape, shape, inputs)
            if value.shape != shape:
                changes["shape derived"] += 1
        for value, shape in results.items():
            value.shape = _with_numbers(shape, value.shape)
        return Outcome(changes)


def _results(model: ir.Model) -> list[ir.Value]:
    """What the bodies of control flow make and give."""
    bodies = [graph for graph in nested_graphs(model.graph) if graph is not model.graph]
    return [v for graph in bodies for v in graph.outputs if v.graph is graph and v.producer() is not None]


def _with_numbers(declared: ir.Shape | None, derived: ir.Shape | None) -> ir.Shape | None:
    if declared is None or derived is None or declared.rank() != derived.rank():
        return declared
    dims = [b if isinstance(b, int) and not isinstance(a, int) else a for a, b in zip(declared, derived, strict=True)]
    return ir.Shape(dims)


def _declared(model: ir.Model) -> dict[ir.Value, ir.Shape | None]:
    produced = (value for graph in model_graphs(model) for node in graph for value in node.outputs)
    return {value: value.shape for value in produced if not value.is_graph_output()}


def _inferred(model: ir.Model) -> ir.Model | None:
    """A copy of the model, without its weights, in which onnx has filled in what it can; None if it cannot."""
    with _without_weights(model):
        proto = to_proto(model)
    try:
        return from_proto(onnx.shape_inference.infer_shapes(proto, data_prop=True))
    except Exception:
        # onnx refuses some models that ONNX Runtime takes; shapes then stay as declared.
        return None


@contextmanager
def _without_weights(model: ir.Model) -> Generator[None, None, None]:
    """Make large initializers of the main graph inputs for a while: inference needs their shapes only."""
    graph = model.graph
    inputs, initializers = list(graph.inputs), list(graph.initializers.values())
    for value in initializers:
        if value.const_value is not None and value.const_value.size > LARGE and value.name is not None:
            del graph.initializers[value.name]
            if not value.is_graph_input():
                graph.inputs.append(value)
    try:
        yield
    finally:
        graph.inputs[:] = inputs
        graph.initializers.clear()
        for value in initializers:
            graph.register_initializer(value)


def _merge(model: ir.Model, inferred: ir.Model) -> None:
    """Both have the same nodes in the same order, so values pair up by position."""
    for graph, twin in zip(nested_graphs(model.graph), nested_graphs(inferred.graph), strict=True):
        for node, other in zip(graph, twin, strict=True):
            for value, found in zip(node.outputs, other.outputs, strict=False):
                if value.type is None:
                    value.type = found.type
                if value.shape is None and found.shape is not None:
                    value.shape = found.shape


def _settled(derived: ir.Shape | None, declared: ir.Shape | None, inputs: set[int | ir.SymbolicDim]) -> ir.Shape | None:
    if derived is None or declared is None:
        return declared if derived is None else derived
    if derived.rank() != declared.rank():
        return derived
    return ir.Shape([_dim(*dims, inputs) for dims in zip(derived, declared, strict=True)])


def _dim(
    derived: int | ir.SymbolicDim, declared: int | ir.SymbolicDim, inputs: set[int | ir.SymbolicDim]
) -> int | ir.SymbolicDim:
    """Exporters know that two dimensions are equal where onnx can only make up a new name."""
    if isinstance(derived, int) or derived in inputs or isinstance(declared, int):
        return derived
    return declared if declared.value else derived
