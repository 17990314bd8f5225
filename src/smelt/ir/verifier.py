"""The invariants of a Model, checked at stage boundaries.

Input: a model. Output: nothing, or a ModelError that names the node. Invariants: names are unique within a graph, a
used value is defined earlier in the same graph or in one around it, graph outputs are defined in their graph,
initializers fit their declared types, opsets are known, and functions expand to a bounded number of nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx_ir as ir

from smelt.base.errors import LoadError, ModelError
from smelt.ir.walk import nested_graphs, scopes

MAX_EXPANDED_NODES = 2_000_000
MAX_FUNCTION_DEPTH = 64
STANDARD_DOMAINS = ("", "ai.onnx")


def verify_model(model: ir.Model) -> None:
    """Check every invariant of the model."""
    verify_opsets(model)
    verify_functions(model)
    verify_graph(model.graph)
    for function in model.functions.values():
        verify_graph(function.graph)


def verify_opsets(model: ir.Model) -> None:
    """Opset and IR versions are ones that exist."""
    if not 3 <= model.ir_version <= onnx.IR_VERSION:
        raise LoadError("SM-LOAD-006", f"IR version {model.ir_version} is not between 3 and {onnx.IR_VERSION}")
    if not model.opset_imports:
        raise LoadError("SM-LOAD-006", "the model declares no opset")
    newest = onnx.defs.onnx_opset_version()
    tables = [model.opset_imports, *(function.opset_imports for function in model.functions.values())]
    for table in tables:
        for domain, version in table.items():
            if version < 1 or (domain in STANDARD_DOMAINS and version > newest):
                raise LoadError(
                    "SM-LOAD-006", f"opset {version} of domain {domain[:80]!r} is not between 1 and {newest}"
                )


def verify_functions(model: ir.Model) -> None:
    """No function calls itself, and inlining them all gives a bounded number of nodes."""
    size: dict[ir.OperatorIdentifier, int] = {}
    depth: dict[ir.OperatorIdentifier, int] = {}
    for name in _callees_first(model):
        calls = list(_calls(model, model.functions[name].graph))
        inner = [key for key in calls if key is not None]
        size[name] = min(len(calls) - len(inner) + sum(size[key] for key in inner), MAX_EXPANDED_NODES + 1)
        depth[name] = 1 + max((depth[key] for key in inner), default=0)
        if depth[name] > MAX_FUNCTION_DEPTH:
            raise LoadError("SM-LOAD-005", f"functions are nested deeper than {MAX_FUNCTION_DEPTH}", node=name[1])
    total = sum(1 if key is None else size[key] for key in _calls(model, model.graph))
    if total > MAX_EXPANDED_NODES:
        raise LoadError("SM-LOAD-005", f"the model's functions expand to more than {MAX_EXPANDED_NODES:,} nodes")


def _calls(model: ir.Model, graph: ir.Graph) -> Iterator[ir.OperatorIdentifier | None]:
    """One item per node: the function it calls, or None."""
    for nested in nested_graphs(graph):
        for node in nested:
            key = node.op_identifier()
            yield key if key in model.functions else None


def _callees_first(model: ir.Model) -> list[ir.OperatorIdentifier]:
    """The functions in an order in which a callee precedes its callers."""
    order: list[ir.OperatorIdentifier] = []
    entered: set[ir.OperatorIdentifier] = set()
    done: set[ir.OperatorIdentifier] = set()
    pending = list(model.functions)
    while pending:
        name = pending[-1]
        if name in done:
            pending.pop()
        elif name in entered:
            pending.pop()
            done.add(name)
            order.append(name)
        else:
            entered.add(name)
            for key in dict.fromkeys(_calls(model, model.functions[name].graph)):
                if key is None or key in done:
                    continue
                if key in entered:
                    raise LoadError("SM-LOAD-005", "a function calls itself", node=key[1])
                pending.append(key)
    return order


def verify_graph(root: ir.Graph) -> None:
    """Check a graph and all graphs nested in it."""
    found = scopes(root)
    position = {node: index for graph in nested_graphs(root) for index, node in enumerate(graph)}
    for graph in nested_graphs(root):
        _verify_names(graph)
        _verify_initializers(graph)
        around = _around(graph, found.holder)
        for node in graph:
            if node.graph is not graph:
                raise ModelError(
                    "SM-MODEL-001", "a node is listed in a graph that it does not belong to", node=node.name
                )
            for value in node.inputs:
                if value is not None:
                    _verify_use(value, node, around, position)
        for value in graph.outputs:
            if not _defined_in(value, graph):
                message = f"graph output {_shown(value)} is not defined in its own graph"
                raise ModelError(
                    "SM-MODEL-002", message, hint="Put an Identity node in the body that makes the output."
                )


def _around(graph: ir.Graph, holder: dict[ir.Graph, ir.Node]) -> dict[ir.Graph, ir.Node | None]:
    """The graph and those around it, each with its node that (indirectly) holds the graph."""
    result: dict[ir.Graph, ir.Node | None] = {graph: None}
    node = holder.get(graph)
    while node is not None and node.graph is not None:
        result[node.graph] = node
        node = holder.get(node.graph)
    return result


def _verify_use(
    value: ir.Value, node: ir.Node, around: dict[ir.Graph, ir.Node | None], position: dict[ir.Node, int]
) -> None:
    home = value.graph
    if home is None or home not in around or not _defined_in(value, home):
        raise ModelError("SM-MODEL-002", f"input {_shown(value)} is not defined", node=node.name)
    producer = value.producer()
    if producer is None:
        return
    user = around[home] or node
    if position[producer] >= position[user]:
        raise ModelError("SM-MODEL-003", f"input {_shown(value)} is computed later than it is used", node=node.name)


def _defined_in(value: ir.Value, graph: ir.Graph) -> bool:
    producer = value.producer()
    if producer is not None:
        return producer.graph is graph
    return value.graph is graph and (value.is_graph_input() or value.is_initializer())


def _verify_names(graph: ir.Graph) -> None:
    seen: dict[str, ir.Value] = {}
    produced = ((value, node) for node in graph for value in node.outputs)
    borders = ((value, None) for value in (*graph.inputs, *graph.initializers.values()))
    for value, node in (*borders, *produced):
        if not value.name:
            if node is None:
                raise ModelError("SM-MODEL-001", "a graph input or initializer has no name")
            continue
        if seen.setdefault(value.name, value) is not value:
            raise ModelError(
                "SM-MODEL-001", f"the name {_shown(value)} is defined twice", node=node.name if node else None
            )
    if len(set(graph.inputs)) != len(graph.inputs):
        raise ModelError("SM-MODEL-001", "a value is twice a graph input")


def _verify_initializers(graph: ir.Graph) -> None:
    for value in graph.initializers.values():
        tensor = value.const_value
        if tensor is None:
            raise ModelError("SM-MODEL-004", f"initializer {_shown(value)} has no data")
        if value.dtype is not None and value.dtype != tensor.dtype:
            raise ModelError(
                "SM-MODEL-004", f"initializer {_shown(value)} is declared {value.dtype} but holds {tensor.dtype}"
            )


def _shown(value: ir.Value) -> str:
    name = value.name or ""
    return repr(name if len(name) <= 80 else name[:77] + "...")
