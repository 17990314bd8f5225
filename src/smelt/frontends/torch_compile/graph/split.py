"""An FX graph cut into parts for ONNX Runtime and the nodes that torch keeps.

Input: a functional ATen graph and a reason against each of its nodes, if there is one. Output: `Split`: the parts as
graph modules of their own, and an outer graph that calls them. Invariant: running the outer graph computes what the
graph computed; the parts are acyclic; a part takes and gives the very values that cross its border.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, Final, cast

import torch
from torch.fx import Graph, GraphModule, Node

from smelt.export.source_lines import user_line
from smelt.frontends.torch_compile._torch import HigherOrderOperator, OpOverload, is_mutable, is_random
from smelt.frontends.torch_compile.graph.random_nodes import STAYS
from smelt.frontends.torch_compile.inspection.record import FallbackNode
from smelt.partition import earliest_levels

Reason = Callable[[Node], str | None]

# What torch does by changing strides alone. A part of nothing else would cost a call and save none.
_aten: Final = torch.ops.aten
_VIEWS: Final = frozenset(
    (

        _aten.view, _aten._unsafe_view, _aten.reshape, _aten.t, _aten.transpose, _aten.permute, _aten.expand,
        _aten.squeeze, _aten.unsqueeze, _aten.slice, _aten.select, _aten.alias, _aten.detach, _aten.split,
        _aten.split_with_sizes, _aten.unbind, _aten.as_strided, _aten.diagonal, _aten.lift_fresh_copy,
        _aten.sym_size, _aten.sym_numel, _aten.sym_stride, _aten.empty,
    )
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """Nodes that one session computes. `inputs` are nodes of the original graph, in the order of the placeholders."""

    name: str
    module: GraphModule
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    members: tuple[Node, ...]


@dataclass(frozen=True)
class Split:
    parts: tuple[Part, ...]
    fallback_nodes: tuple[FallbackNode, ...]
    graph: GraphModule


def split(graph: GraphModule, reason_against: Reason) -> Split:
    """Cut the graph by what may run in ONNX Runtime."""
    nodes = [node for node in graph.graph.nodes if node.op in ("call_function", "call_module", "call_method")]
    reasons = _reasons(nodes, reason_against)
    members = _members(nodes, reasons)
    kept: list[tuple[Node, ...]] = []
    for group in members:
        if all(_is_view(node) for node in group):
            reasons |= dict.fromkeys(group, "only changes shapes: torch does it for nothing")
        else:
            kept.append(group)
    parts = [_extract(graph, group, f"part_{place}") for place, group in enumerate(kept)]
    fallbacks = tuple(fallback_node(node, reason) for node, reason in reasons.items() if not _is_free(node))
    return Split(tuple(parts), fallbacks, graph)


def by_node(cut: Split) -> Split:
    """The same with a part for each node; what takes elements of a tuple goes with the node that made it."""
    members = [node for part in cut.parts for node in part.members]
    inside = set(members)
    groups = [
        (node, *(user for user in node.users if user.target is operator.getitem and user in inside))
        for node in members
        if node.target is not operator.getitem
    ]
    parts = [_extract(cut.graph, group, f"node_{place}") for place, group in enumerate(groups)]
    return Split(tuple(part for part in parts if part.outputs), cut.fallback_nodes, cut.graph)


def _reasons(nodes: Sequence[Node], reason_against: Reason) -> dict[Node, str]:
    """Reasons by node. What takes an element of a tuple stays with the node that made it."""
    found: dict[Node, str] = {}
    for node in nodes:
        if node.target is operator.getitem and isinstance(node.args[0], Node):
            source = node.args[0]
            if source in found:
                found[node] = found[source]
            continue
        reason = reason_against(node)
        if reason is not None:
            found[node] = reason
    return found


def _members(nodes: Sequence[Node], reasons: Mapping[Node, str]) -> list[tuple[Node, ...]]:
    """Nodes of one level together: along a path out of a level, none returns to it."""
    place = {node: at for at, node in enumerate(nodes)}
    earlier = _earlier_writers(nodes)
    before = [[place[n] for n in (*node.all_input_nodes, *_one(earlier.get(node))) if n in place] for node in nodes]
    claimed = [node not in reasons for node in nodes]
    levels = earliest_levels(before, claimed)
    groups: dict[int, list[Node]] = {}
    for node, level, mine in zip(nodes, levels, claimed, strict=True):
        if mine:
            groups.setdefault(level, []).append(node)
    return [tuple(groups[level]) for level in sorted(groups)]


def _one(node: Node | None) -> tuple[Node, ...]:
    return () if node is None else (node,)


def _is_view(node: Node) -> bool:
    target: Any = node.target
    if target is operator.getitem or not isinstance(node.meta.get("val"), (torch.Tensor, tuple, list)):
        return True
    return isinstance(target, OpOverload) and target.overloadpacket in _VIEWS


def _is_free(node: Node) -> bool:
    """Left in torch, but no loss: views, elements of tuples, sizes, what stands in for a tensor's shape."""
    return _is_view(node) or STAYS in node.meta


def fallback_node(node: Node, reason: str) -> FallbackNode:
    """The node as reports name it, with the line of the program that it comes from."""
    return FallbackNode(node.name, str(node.target), reason, user_line(node.meta.get("stack_trace")))


def _extract(graph: GraphModule, group: Sequence[Node], name: str) -> Part:
    """The group as a graph module of its own. Its inputs are in the graph's order: a part that is the whole graph
    takes the arguments as they come. Sizes of its inputs it reads itself."""
    inside = set(group)
    needed = {n for node in group for n in node.all_input_nodes if n not in inside}
    outside = [node for node in graph.graph.nodes if node in needed]
    sizes = [node for node in outside if node.target is _aten.sym_size.int and node.args[0] in needed]
    inputs = [node for node in outside if node.op != "get_attr" and node not in sizes]
    inner = Graph()
    copies = {node: inner.placeholder(node.name) for node in inputs}
    attributes: dict[str, Any] = {}
    for node in outside:
        if node.op == "get_attr":
            copies[node] = inner.get_attr(cast("str", node.target))
            attributes[cast("str", node.target)] = _attribute(graph, cast("str", node.target))
        if node not in sizes:
            copies[node].meta = dict(node.meta)
    for node in (*sizes, *group):
        copies[node] = inner.node_copy(node, lambda n: copies[n])
    outputs = [node for node in group if any(user not in inside for user in node.users)]
    inner.output(tuple(copies[node] for node in outputs))
    return Part(name, GraphModule(attributes, inner), tuple(inputs), tuple(outputs), tuple(group))


def _attribute(graph: GraphModule, path: str) -> Any:
    found: Any = graph
    for name in path.split("."):
        found = getattr(found, name)
    return found


def outer_graph(split: Split, calls: Sequence[torch.nn.Module]) -> GraphModule:
    """The graph with each part replaced by a call of its module, in an order in which all needs are met."""
    outer = Graph()
    copies: dict[Node, Node] = {}
    for item in _ordered(split):
        if isinstance(item, Node):
            copies[item] = outer.node_copy(item, lambda n: copies[n])
            continue
        call = outer.call_module(item.name, tuple(copies[node] for node in item.inputs))
        for place, node in enumerate(item.outputs):
            copies[node] = outer.call_function(operator.getitem, (call, place))
            copies[node].meta = dict(node.meta)
    modules: dict[str, Any] = {part.name: call for part, call in zip(split.parts, calls, strict=True)}
    for node in split.graph.graph.nodes:
        if node.op == "get_attr" and node.target not in modules:
            modules[cast("str", node.target)] = _attribute(split.graph, cast("str", node.target))
    return GraphModule(modules, outer)


def _ordered(split: Split) -> Iterator[Node | Part]:
    """Nodes outside of parts, and parts, each after what it needs; otherwise as the graph has them."""
    home: dict[Node, Part] = {node: part for part in split.parts for node in part.members}
    nodes: list[Node] = list(split.graph.graph.nodes)
    items = list(dict.fromkeys(_place(node, home) for node in nodes))
    place = {item: at for at, item in enumerate(items)}
    earlier = _earlier_writers(nodes)
    needs = [_needs(item, home, earlier, nodes[-1]) for item in items]
    users: list[list[int]] = [[] for _ in items]
    for at, needed in enumerate(needs):
        for other in needed:
            users[place[other]].append(at)
    missing = [len(needed) for needed in needs]
    ready = [at for at, count in enumerate(missing) if count == 0]
    heapify(ready)
    while ready:
        at = heappop(ready)
        yield items[at]
        for user in users[at]:
            missing[user] -= 1
            if missing[user] == 0:
                heappush(ready, user)


def _needs(item: Node | Part, home: Mapping[Node, Part], earlier: Mapping[Node, Node], last: Node) -> set[Node | Part]:
    if isinstance(item, Part):
        return {_place(node, home) for node in item.inputs}
    sources = [*item.all_input_nodes, *((earlier[item],) if item in earlier else ())]
    if item is last:  # the output: what nobody uses is still run before it
        sources += [node for node in item.graph.nodes if node is not item]
    return {_place(node, home) for node in sources}


def _place(node: Node, home: Mapping[Node, Part]) -> Node | Part:
    part = home.get(node)
    return node if part is None else part


def _earlier_writers(nodes: Sequence[Node]) -> dict[Node, Node]:
    """Nodes with effects beyond their results (random state, writes), each with the one that must come before."""
    ordered = [node for node in nodes if has_effects(node)]
    return dict(zip(ordered[1:], ordered, strict=False))


def has_effects(node: Node) -> bool:
    """Whether running the node twice, or later, would be noticed: it draws random numbers, writes or is impure."""
    target = node.target
    return isinstance(target, HigherOrderOperator) or is_random(node) or is_mutable(target)
