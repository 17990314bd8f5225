"""Choose regions: Model + a backend's claims -> Plan.

Input: a model in topological order and a backend. Output: a Plan in which every node is in exactly one region or in
`left` with its reason. Invariant: a region's nodes are of one graph, and replacing every region by one node leaves
each graph acyclic; dropping any of the regions keeps it so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import onnx_ir as ir

from smelt.ir.faults import Faults
from smelt.ir.records import Backend, Claim, Left, Plan, Region
from smelt.ir.walk import model_graphs, nested_graphs, scopes, subgraphs
from smelt.partition.cost import pays
from smelt.partition.levels import NO_CLUSTER, cluster


def capture(
    model: ir.Model,
    backend: Backend,
    select: Sequence[str] = (),
    exclude: Sequence[str] = (),
    force: bool = False,
    faults: Faults | None = None,
) -> Plan:
    """Partition all graphs of the model.

    `select` and `exclude` are glob patterns over node names, op types and `domain::op_type`; an empty `select` means
    everything. With `force`, regions are kept whether or not they pay. An exception of the backend costs the node or
    the region that it was asked about.
    """
    choice = _Choice(backend, tuple(select), tuple(exclude), faults if faults is not None else Faults())
    regions: list[Region] = []
    left: list[Left] = []
    captured = scopes(model.graph).captured
    for graph in model_graphs(model):
        refused = dict[ir.Node, str]()
        for nodes in _clusters(graph, choice, captured, refused):
            region = make_region(len(regions), nodes)
            verdict = Claim(True) if force else choice.worth(region)
            if verdict.ok:
                regions.append(region)
            else:
                refused.update((node, verdict.reason) for node in nodes)
        left.extend(Left(node, refused[node]) for node in graph if node in refused)
    for function in model.functions.values():
        body = (node for graph in nested_graphs(function.graph) for node in graph)
        left.extend(Left(node, f"in the body of function {function.name}") for node in body)
    return Plan(tuple(regions), tuple(left))


@dataclass(frozen=True)
class _Choice:
    """The backend's claims, restricted by the user's patterns."""

    backend: Backend
    select: tuple[str, ...]
    exclude: tuple[str, ...]
    faults: Faults

    def claims(self, node: ir.Node) -> Claim:
        for pattern in self.exclude:
            if _matches(node, pattern):
                return Claim(False, f"excluded by the pattern {pattern!r}")
        if self.select and not any(_matches(node, pattern) for pattern in self.select):
            return Claim(False, "not selected")
        if any(True for _ in subgraphs(node)):
            return Claim(False, "control flow: its bodies are partitioned on their own")
        try:
            return self.backend.claims(node)
        except Exception as error:
            return Claim(False, self.faults.contain("capture", error, [node]))

    def worth(self, region: Region) -> Claim:
        try:
            verdict = pays(region)
            return self.backend.worth(region) if verdict.ok else verdict
        except Exception as error:
            return Claim(False, self.faults.contain("capture", error, region.nodes))


def _matches(node: ir.Node, pattern: str) -> bool:
    names = (node.name or "", node.op_type, f"{node.domain}::{node.op_type}")
    return any(fnmatchcase(name, pattern) for name in names)


def _clusters(
    graph: ir.Graph, choice: _Choice, captured: dict[ir.Node, list[ir.Value]], refused: dict[ir.Node, str]
) -> Iterator[list[ir.Node]]:
    """The clusters of claimed nodes of one graph, in topological order; records refused claims."""
    nodes = list(graph)
    claims = [choice.claims(node) for node in nodes]
    refused.update((node, claim.reason) for node, claim in zip(nodes, claims, strict=True) if not claim.ok)
    numbers = cluster(dependencies(nodes, captured), [claim.ok for claim in claims])
    groups: list[list[ir.Node]] = [[] for _ in range(max(numbers, default=NO_CLUSTER) + 1)]
    for node, number in zip(nodes, numbers, strict=True):
        if number != NO_CLUSTER:
            groups[number].append(node)
    yield from groups


def dependencies(nodes: Sequence[ir.Node], captured: dict[ir.Node, list[ir.Value]]) -> list[list[int]]:
    """For every node, the positions of the nodes whose results it or its nested graphs use."""
    position = {node: index for index, node in enumerate(nodes)}
    found: list[list[int]] = []
    for node in nodes:
        values = [*node.inputs, *captured.get(node, ())]
        producers = (value.producer() for value in values if value is not None)
        found.append(list(dict.fromkeys(position[p] for p in producers if p is not None and p in position)))
    return found


def make_region(index: int, nodes: Sequence[ir.Node]) -> Region:
    """These nodes of one graph, in topological order, with the values that cross their border."""
    inside = set(nodes)
    inputs: dict[ir.Value, None] = {}
    outputs: list[ir.Value] = []
    for node in nodes:
        for value in node.inputs:
            if value is not None and value.producer() not in inside:
                inputs[value] = None
        outputs.extend(value for value in node.outputs if _leaves(value, inside))
    return Region(index, tuple(nodes), tuple(inputs), tuple(outputs))


def _leaves(value: ir.Value, inside: set[ir.Node]) -> bool:
    return value.is_graph_output() or any(user not in inside for user, _ in value.uses())
