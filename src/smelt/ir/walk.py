"""Iterative walks over a model's graphs.

Input: a model, graph or node of `onnx_ir`. Output: graphs and nodes in a deterministic order (a graph before the
graphs nested in its nodes). Invariant: no function here recurses, so nesting depth is bounded by memory only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

_HOLDING = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs that the node holds in its attributes."""
    return _graphs_among(node.attributes.values())


def _graphs_among(attributes: Iterable[ir.Attr]) -> Iterator[ir.Graph]:
    for attribute in attributes:
        kind = attribute.type
        if kind not in _HOLDING or attribute.is_ref():
            continue
        if kind == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        else:
            yield from attribute.as_graphs()


def nested_graphs(root: ir.Graph) -> Iterator[ir.Graph]:
    """The graph itself, then all graphs nested in it, outer before inner."""
    pending = [root]
    while pending:
        graph = pending.pop()
        yield graph
        inner = [sub for node in graph if (held := node.attributes) for sub in _graphs_among(held.values())]
        pending.extend(reversed(inner))


def model_graphs(model: ir.Model, *, functions: bool = False) -> Iterator[ir.Graph]:
    """All graphs of the model; those of its functions too when asked."""
    yield from nested_graphs(model.graph)
    if functions:
        for function in model.functions.values():
            yield from nested_graphs(function.graph)


def model_nodes(model: ir.Model, *, functions: bool = False) -> Iterator[ir.Node]:
    """All nodes of all graphs of the model."""
    for graph in model_graphs(model, functions=functions):
        yield from graph


@dataclass(frozen=True)
class Scopes:
    """Which node holds each nested graph, and what nodes depend on through their nested graphs."""

    holder: dict[ir.Graph, ir.Node]
    captured: dict[ir.Node, list[ir.Value]]


def scopes(root: ir.Graph) -> Scopes:
    """Find, for every node that holds graphs, the outer values which those graphs use (at any depth)."""
    holder: dict[ir.Graph, ir.Node] = {}
    for graph in nested_graphs(root):
        for node in graph:
            for sub in subgraphs(node):
                holder[sub] = node
    captured: dict[ir.Node, dict[ir.Value, None]] = {}
    for graph in holder:
        for value in _outer_values(graph):
            for node in _holders_between(graph, value.graph, holder):
                captured.setdefault(node, {})[value] = None
    return Scopes(holder, {node: list(values) for node, values in captured.items()})


def _outer_values(graph: ir.Graph) -> dict[ir.Value, None]:
    found: dict[ir.Value, None] = {}
    for node in graph:
        for value in node.inputs:
            if value is not None and value.graph is not graph:
                found[value] = None
    for value in graph.outputs:
        if value.graph is not graph:
            found[value] = None
    return found


def _holders_between(inner: ir.Graph, outer: ir.Graph | None, holder: dict[ir.Graph, ir.Node]) -> Iterator[ir.Node]:
    graph: ir.Graph | None = inner
    while graph is not None and graph is not outer:
        node = holder.get(graph)
        if node is None:
            return
        yield node
        graph = node.graph
