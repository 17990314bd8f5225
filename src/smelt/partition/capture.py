"""Choose regions: Model + the backends' claims -> Plan.

Input: a model in topological order, and backends in order of preference. Output: a Plan in which every node is in
exactly one region or in `fallbacks` with its reason. Invariant: a region's nodes are of one graph and of the first
backend that claims them, and replacing every region by one node leaves each graph acyclic; dropping any of the regions
keeps it so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import onnx_ir as ir

from smelt.ir.backend import Backend
from smelt.ir.faults import Faults
from smelt.ir.records import Claim, Fallback, Plan, Region
from smelt.ir.walk import model_graphs, nested_graphs, scopes, subgraphs
from smelt.partition.cost import pays
from smelt.partition.levels import NO_CLUSTER, cluster, contract


def capture(
    model: ir.Model,
    backends: Sequence[Backend],
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
    choice = _Choice(tuple(backends), tuple(select), tuple(exclude), faults if faults is not None else Faults())
    regions: list[Region] = []
    fallbacks: list[Fallback] = []
    captured = scopes(model.graph).captured
    for graph in model_graphs(model):
        refused = dict[ir.Node, str]()
        for backend, nodes in _clusters(graph, choice, captured, refused):
            region = make_region(len(regions), nodes, backend.name)
            verdict = Claim(True) if force else choice.pays(backend, region)
            if verdict.ok:
                regions.append(region)
            else:
                refused.update((node, verdict.reason) for node in nodes)
        fallbacks.extend(Fallback(node, refused[node]) for node in graph if node in refused)
    for function in model.functions.values():
        body = (node for graph in nested_graphs(function.graph) for node in graph)
        fallbacks.extend(Fallback(node, f"in the body of function {function.name}") for node in body)
    return Plan(tuple(regions), tuple(fallbacks))


@dataclass(frozen=True)
class _Choice:
    """The backends' claims, restricted by the user's patterns."""

    backends: tuple[Backend, ...]
    select: tuple[str, ...]
    exclude: tuple[str, ...]
    faults: Faults

    def claimed(self, node: ir.Node) -> tuple[Backend | None, str]:
        """Who takes a node, or why nobody does."""
        reasons = [reason] if (reason := self._excluded(node)) else []
        for backend in () if reasons else self.backends:
            claim = self._asked(backend, node)
            if claim.ok:
                return backend, ""
            reasons.append(claim.reason)
        return None, "; ".join(dict.fromkeys(reasons))

    def _excluded(self, node: ir.Node) -> str:
        for pattern in self.exclude:
            if _matches(node, pattern):
                return f"excluded by the pattern {pattern!r}"
        if self.select and not any(_matches(node, pattern) for pattern in self.select):
            return "not selected"
        if any(True for _ in subgraphs(node)):
            return "control flow: its bodies are partitioned on their own"
        return ""

    def _asked(self, backend: Backend, node: ir.Node) -> Claim:
        try:
            claim = backend.claims(node)
            beyond = backend.capabilities.unsupported(node) if claim.ok else ""
            return Claim(False, f"backend {backend.name}: {beyond}") if beyond else claim
        except Exception as error:
            return Claim(False, self.faults.contain("capture", error, [node]))

    def pays(self, backend: Backend, region: Region) -> Claim:
        try:
            verdict = pays(region)
            return backend.cost(region) if verdict.ok else verdict
        except Exception as error:
            return Claim(False, self.faults.contain("capture", error, region.nodes))


def _matches(node: ir.Node, pattern: str) -> bool:
    names = (node.name or "", node.op_type, f"{node.domain}::{node.op_type}")
    return any(fnmatchcase(name, pattern) for name in names)


def _clusters(
    graph: ir.Graph, choice: _Choice, captured: dict[ir.Node, list[ir.Value]], refused: dict[ir.Node, str]
) -> Iterator[tuple[Backend, list[ir.Node]]]:
    """The clusters of claimed nodes of one graph, those of one backend in topological order; records refused claims."""
    nodes = list(graph)
    claims = [choice.claimed(node) for node in nodes]
    refused.update((node, reason) for node, (taker, reason) in zip(nodes, claims, strict=True) if taker is None)
    vertices, edges = [[place] for place in range(len(nodes))], dependencies(nodes, captured)
    for backend in choice.backends:
        taken = [claims[members[0]][0] is backend for members in vertices]
        if not any(taken):
            continue
        numbers = cluster(edges, taken)
        groups: list[list[int]] = [[] for _ in range(max(numbers) + 1)]
        for members, number in zip(vertices, numbers, strict=True):
            if number != NO_CLUSTER:
                groups[number] += members
        yield from ((backend, [nodes[place] for place in sorted(group)]) for group in groups)
        if backend is not choice.backends[-1]:
            vertices, edges = contract(vertices, edges, numbers)


def dependencies(nodes: Sequence[ir.Node], captured: dict[ir.Node, list[ir.Value]]) -> list[list[int]]:
    """For every node, the positions of the nodes whose results it or its nested graphs use."""
    position = {node: index for index, node in enumerate(nodes)}
    found: list[list[int]] = []
    for node in nodes:
        values = [*node.inputs, *captured.get(node, ())]
        producers = (value.producer() for value in values if value is not None)
        found.append(list(dict.fromkeys(position[p] for p in producers if p is not None and p in position)))
    return found


def make_region(index: int, nodes: Sequence[ir.Node], backend: str = "") -> Region:
    """These nodes of one graph, in topological order, with the values that cross their border."""
    inside = set(nodes)
    inputs: dict[ir.Value, None] = {}
    outputs: list[ir.Value] = []
    for node in nodes:
        for value in node.inputs:
            if value is not None and value.producer() not in inside:
                inputs[value] = None
        outputs.extend(value for value in node.outputs if _leaves(value, inside))
    return Region(index, tuple(nodes), tuple(inputs), tuple(outputs), backend)


def _leaves(value: ir.Value, inside: set[ir.Node]) -> bool:
    return value.is_graph_output() or any(user not in inside for user, _ in value.uses())
