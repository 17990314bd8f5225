"""Topological order of one graph's nodes.

Input: a graph, and what its nodes capture through nested graphs. Output: the same graph, sorted in place. Invariant:
nodes that need not move keep the order of their priorities; a cycle is an error that names a node on it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

import onnx_ir as ir

from smelt.base.errors import ModelError

Captured = Mapping[ir.Node, Iterable[ir.Value]]


def is_sorted(graph: ir.Graph, captured: Captured) -> bool:
    """Whether every node comes after those that it depends on."""
    seen: set[ir.Node] = set()
    for node in graph:
        if any(source not in seen for source in _sources(node, graph, captured)):
            return False
        seen.add(node)
    return True


def sort_graph(graph: ir.Graph, captured: Captured, priority: Mapping[ir.Node, int] | None = None) -> None:
    """Sort the nodes; those ready at the same time go by priority (default: their present position)."""
    nodes = list(graph)
    position = {node: index for index, node in enumerate(nodes)}
    users: list[list[int]] = [[] for _ in nodes]
    waiting = [0] * len(nodes)
    for index, node in enumerate(nodes):
        for source in _sources(node, graph, captured):
            users[position[source]].append(index)
            waiting[index] += 1
    rank = list(range(len(nodes))) if priority is None else [priority[node] for node in nodes]
    ready = [(rank[index], index) for index, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    order: list[ir.Node] = []
    while ready:
        _, index = heapq.heappop(ready)
        order.append(nodes[index])
        for user in users[index]:
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, (rank[user], user))
    if len(order) != len(nodes):
        stuck = next(index for index, count in enumerate(waiting) if count)
        raise ModelError("SM-MODEL-003", "nodes depend on each other in a circle", node=nodes[stuck].name)
    graph.extend(order)


def _sources(node: ir.Node, graph: ir.Graph, captured: Captured) -> set[ir.Node]:
    values = (*node.inputs, *captured.get(node, ()))
    producers = (value.producer() for value in values if value is not None)
    return {producer for producer in producers if producer is not None and producer.graph is graph}
