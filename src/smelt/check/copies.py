"""Copies of a model in which whole regions are one node each.

Input: a model and regions of it. Output: `Copied`: the copy, and what became of each value, node and region. Invariant:
the model is unchanged; tensors are shared; nodes inside a region of the main graph are not copied, since the copy is
made to replace them: what stands for them has the region's inputs and outputs, and its place in the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import onnx_ir as ir

from smelt.ir.records import Region
from smelt.ir.walk import nested_graphs, subgraphs

_STANDS_FOR: Final = "smelt.region"


@dataclass(frozen=True)
class Copied:
    """`values` are those of the model and of the copy; `regions` are in the order that they were given in."""

    model: ir.Model
    values: dict[ir.Value, ir.Value]
    regions: list[Region]


def copy_model(model: ir.Model, regions: Sequence[Region]) -> Copied:
    """Regions inside bodies of control flow are copied node by node."""
    whole = [region for region in regions if region.nodes[0].graph is model.graph]
    inside = {node for region in whole for node in region.nodes}
    rest = [node for node in model.graph if node not in inside]
    made = [value for region in whole for value in region.outputs]
    graph = _copied_graph(model.graph, rest, made)
    values, nodes = _matched(model.graph, graph, rest, made)
    del graph.inputs[len(model.graph.inputs) :]
    stubs = _put_stubs(model.graph, graph, whole, values, nodes)
    moved = [_moved(region, values, nodes, stubs.get(region.index)) for region in regions]
    return Copied(_copied_model(model, graph), values, moved)


def _copied_graph(graph: ir.Graph, nodes: Sequence[ir.Node], made: Sequence[ir.Value]) -> ir.Graph:
    """`made` are inputs of the copy, behind its own."""
    view = ir.GraphView(
        (*graph.inputs, *made), tuple(graph.outputs), nodes=nodes, initializers=tuple(graph.initializers.values()),
        doc_string=graph.doc_string, opset_imports=dict(graph.opset_imports), name=graph.name,
        metadata_props=dict(graph.metadata_props),
    )  # fmt: skip
    copy = view.clone()
    copy.meta.update(graph.meta)
    return copy


def _copied_model(model: ir.Model, graph: ir.Graph) -> ir.Model:
    return ir.Model(
        graph, ir_version=model.ir_version, producer_name=model.producer_name,
        producer_version=model.producer_version, domain=model.domain, model_version=model.model_version,
        doc_string=model.doc_string, functions=[function.clone() for function in model.functions.values()],
        metadata_props=dict(model.metadata_props),
    )  # fmt: skip


def _matched(
    graph: ir.Graph, copy: ir.Graph, rest: Iterable[ir.Node], made: Sequence[ir.Value]
) -> tuple[dict[ir.Value, ir.Value], dict[ir.Node, ir.Node]]:
    """What became of each value and node that was copied."""
    values = dict(zip((*graph.inputs, *made), copy.inputs, strict=True))
    nodes = dict(zip(rest, copy, strict=True))
    values.update((value, copy.initializers[name]) for name, value in graph.initializers.items())
    bodies = [(a, b) for pair in nodes.items() for a, b in zip(*map(_bodies, pair), strict=True)]
    for old, new in bodies:
        values.update(zip(old.inputs, new.inputs, strict=True))
        values.update((value, new.initializers[name]) for name, value in old.initializers.items())
        nodes.update(zip(old, new, strict=True))
    for old, new in nodes.items():
        values.update(zip(old.outputs, new.outputs, strict=True))
    return values, nodes


def _bodies(node: ir.Node) -> list[ir.Graph]:
    return [graph for body in subgraphs(node) for graph in nested_graphs(body)]


def _put_stubs(
    graph: ir.Graph, copy: ir.Graph, regions: Sequence[Region], values: dict[ir.Value, ir.Value],
    nodes: dict[ir.Node, ir.Node],
) -> dict[int, ir.Node]:  # fmt: skip
    """A node for each region, where its last node was."""
    ends = {region.nodes[-1]: region for region in regions}
    stubs: dict[int, ir.Node] = {}
    before: ir.Node | None = None
    for node in graph:
        if node in nodes:
            before = nodes[node]
        elif node in ends:
            region = ends[node]
            inputs, outputs = ([values[v] for v in side] for side in (region.inputs, region.outputs))
            stub = ir.Node("", _STANDS_FOR, inputs, outputs=outputs)
            _insert(copy, before, stub)
            stubs[region.index] = before = stub
    return stubs


def _insert(graph: ir.Graph, before: ir.Node | None, node: ir.Node) -> None:
    first = next(iter(graph), None)
    if before is not None:
        graph.insert_after(before, node)
    elif first is not None:
        graph.insert_before(first, node)
    else:
        graph.append(node)


def _moved(
    region: Region, values: dict[ir.Value, ir.Value], nodes: dict[ir.Node, ir.Node], stub: ir.Node | None
) -> Region:
    inside = tuple(nodes[node] for node in region.nodes) if stub is None else (stub,)
    inputs, outputs = (tuple(values[v] for v in side) for side in (region.inputs, region.outputs))
    return Region(region.index, inside, inputs, outputs, region.backend)
