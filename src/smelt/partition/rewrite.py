"""Replace regions by custom-op nodes: Model + Plan -> Model, in place.

Input: the model that the plan was made for (unchanged since). Output: the same model, where each region is one node
of `domain`. Invariant: graph inputs and outputs keep names, types and order, and but for branches of If their shapes;
every replaced value keeps its name and type, and of its shape what is certain; every graph is in topological order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx_ir as ir

from smelt.base.errors import SmeltError
from smelt.ir.order import sort_graph
from smelt.ir.records import Plan, Region
from smelt.ir.sizes import certain_shape
from smelt.ir.walk import model_graphs, model_nodes, scopes, subgraphs

DOMAIN_VERSION = 1


def rewrite(model: ir.Model, plan: Plan, domain: str, names: Mapping[int, str] | Sequence[str]) -> None:
    """Put one `domain::names[region.index]` node in place of each region of the plan."""
    if not plan.regions:
        return
    taken = {node.name for node in model_nodes(model) if node.name}
    gone = {node: region for region in plan.regions for node in region.nodes}
    branches = {branch for node in model_nodes(model) if node.op_type == "If" for branch in subgraphs(node)}
    results = frozenset(v for graph in model_graphs(model) if graph not in branches for v in graph.outputs)
    by_graph: dict[ir.Graph, list[Region]] = {}
    for region in plan.regions:
        by_graph.setdefault(_graph_of(region), []).append(region)
    positions = {graph: {node: i for i, node in enumerate(graph)} for graph in by_graph}
    renewed: dict[ir.Value, ir.Value] = {}
    replacements: dict[ir.Graph, dict[ir.Node, int]] = {}
    for graph in (g for g in model_graphs(model) if g in by_graph):
        made = replacements.setdefault(graph, {})
        for region in by_graph[graph]:
            node = _replacement(region, domain, names[region.index], renewed, taken, results)
            made[node] = positions[graph][region.nodes[-1]]
    for old, new in renewed.items():
        _move_uses(old, new, gone)
    # Inner graphs first: a value may be removed once no body uses it.
    for graph, made in reversed(replacements.items()):
        graph.remove([node for region in by_graph[graph] for node in region.nodes], safe=True)
        graph.extend(made)
    captured = scopes(model.graph).captured
    for graph, made in replacements.items():
        sort_graph(graph, captured, {**positions[graph], **made})
    for value in (v for graph in model_graphs(model) for node in graph for v in node.outputs):
        producer = value.producer()
        if producer is not None and producer.domain != domain and not _is_seen(value):
            value.shape = certain_shape(value)
    model.opset_imports[domain] = DOMAIN_VERSION


def _graph_of(region: Region) -> ir.Graph:
    graph = region.nodes[0].graph
    if graph is None:
        raise SmeltError(
            "SM-PLAN-001",
            f"region {region.index} names a node that is in no graph",
            node=region.nodes[0].name,
            hint="Make a new plan: the model was changed since this one was made.",
        )
    return graph


def _replacement(
    region: Region, domain: str, op_type: str, renewed: dict[ir.Value, ir.Value], taken: set[str],
    results: Collection[ir.Value],
) -> ir.Node:  # fmt: skip
    """`results` are outputs of all graphs but the branches of If."""
    outputs = [_counterpart(value, results) for value in region.outputs]
    inputs = [renewed.get(value, value) for value in region.inputs]
    renewed.update(zip(region.outputs, outputs, strict=True))
    name = _unused(f"{op_type}_{region.index}", taken)
    return ir.Node(domain, op_type, inputs, outputs=outputs, name=name)


def _counterpart(value: ir.Value, results: Collection[ir.Value]) -> ir.Value:
    """Of a branch's output no shape: stock ONNX Runtime allocates by what a branch declares, where its nodes tell none.
    A loop that takes no turn has nothing else to tell the sizes of what it stacks."""
    declared = value.shape if value in results else None
    return ir.Value(name=value.name, type=value.type, shape=declared if _is_seen(value) else certain_shape(value))


def _is_seen(value: ir.Value) -> bool:
    """What a model or a body declares of its outputs stays."""
    return value.is_graph_output()


def _unused(name: str, taken: set[str]) -> str:
    candidate, number = name, 0
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate)
    return candidate


def _move_uses(old: ir.Value, new: ir.Value, gone: Mapping[ir.Node, Region]) -> None:
    """Point users that stay, and graph outputs, to the new value; users that go are left to their removal."""
    graph = old.graph
    if old.is_graph_output() and graph is not None:
        for index, output in enumerate(graph.outputs):
            if output is old:
                graph.outputs[index] = new
    for user, index in old.uses():
        if user not in gone:
            user.replace_input_with(index, new)
