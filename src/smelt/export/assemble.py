"""The end of a translation: nodes -> model.

Input: a builder, graph inputs, graph outputs. Output: an `ir.Model` without dead nodes, unused initializers and unused
scalar inputs; the inputs that stay. Invariant: tensor inputs stay only when they are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import onnx_ir as ir

from smelt.base.version import __version__
from smelt.export.builder import Builder

IR_VERSION: Final = 10


def assembled_model(
    builder: Builder, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]
) -> tuple[ir.Model, list[ir.Value]]:
    """The model, and the inputs that it still has."""
    nodes, used = _live(builder.scopes[0].nodes, outputs)
    kept = [value for value in inputs if value in used]
    initializers = [value for value in builder.initializers.values() if value in used]
    imports = {domain: builder.opset if domain == "" else 1 for domain in builder.domains}
    graph = ir.Graph(kept, list(outputs), nodes=nodes, initializers=initializers, opset_imports=imports, name="smelt")
    model = ir.Model(graph, ir_version=IR_VERSION, producer_name="smelt", producer_version=__version__)
    for identifier, function in builder.functions.items():
        model.functions[identifier] = function
    return model, kept


def _live(nodes: list[ir.Node], outputs: Iterable[ir.Value]) -> tuple[list[ir.Node], set[ir.Value]]:
    """Nodes that outputs depend on, in order, and every value that they read."""
    used = set(outputs)
    live: list[ir.Node] = []
    for node in reversed(nodes):
        if used.isdisjoint(node.outputs):
            _detach(node)
            continue
        live.append(node)
        used.update(value for value in node.inputs if value is not None)
        used.update(_captured(node))
    return live[::-1], used


def _detach(node: ir.Node) -> None:
    for index in range(len(node.inputs)):
        node.replace_input_with(index, None)


def _captured(node: ir.Node) -> Iterator[ir.Value]:
    """Values that a node's subgraphs read from around it (and some of their own, which do no harm)."""
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            graph: ir.Graph = attribute.value  # pyright: ignore[reportAssignmentType]
            yield from graph.outputs
            for inner in graph:
                yield from (value for value in inner.inputs if value is not None)
                yield from _captured(inner)
