"""Model + Plan -> Picture: what reports need to know of a graph.

Input: a prepared model with all its nodes in place, the plan that was made for it or for an equal copy (whose nodes
may be gone since), and the op counts of the model as it was loaded. Output: a `Picture` of plain data. Invariant: a
producer's place is lower than that of its users, so that the picture can be laid out in one pass; no tensor content
is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import onnx_ir as ir

from smelt.ir.printer import format_type
from smelt.ir.records import Plan
from smelt.ir.walk import model_nodes, scopes, subgraphs
from smelt.report.readable import readable

_MAX_VALUES: Final = 12
_MAX_ATTRIBUTES: Final = 12


@dataclass(frozen=True)
class PictureNode:
    """One node. `sources` are places of nodes whose results it reads; `region` is -1 where ONNX Runtime keeps it."""

    op: str
    name: str
    region: int
    reason: str
    sources: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[str, ...] = ()
    nested: bool = False


@dataclass(frozen=True)
class Picture:
    """`original` counts ops of the model as it was loaded; `nodes` are those of the prepared model."""

    original: Mapping[str, int] = field(default_factory=dict[str, int])
    nodes: tuple[PictureNode, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


def op_name(node: ir.Node) -> str:
    """`Add`, `com.microsoft::Gelu`."""
    spelled = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"
    return readable(spelled)


def count_ops(model: ir.Model) -> dict[str, int]:
    """How often each op occurs, in nested graphs too; the bodies of functions are counted once."""
    return dict(Counter(op_name(node) for node in model_nodes(model, functions=True)))


def draw(model: ir.Model, plan: Plan, original: Mapping[str, int]) -> Picture:
    """Every node with its region or its reason."""
    fates = _Fates(plan)
    place_of: dict[ir.Node, int] = {}
    nodes: list[PictureNode] = []
    holders = scopes(model.graph)
    for node in _bodies_first(model):
        place_of[node] = len(nodes)
        read = [v for v in (*node.inputs, *holders.captured.get(node, ()), *_results(node)) if v is not None]
        sources = {place_of[p]: None for v in read if (p := v.producer()) is not None and p in place_of}
        region, reason = fates.take(node)
        nodes.append(
            PictureNode(
                op_name(node),
                readable(node.name or ""),
                region,
                readable(reason, 400),
                tuple(sources),
                _values(node.inputs),
                _values(node.outputs),
                _attributes(node),
                node.graph is not model.graph,
            )
        )
    graph = model.graph
    return Picture(dict(original), tuple(nodes), _values(graph.inputs, 200), _values(graph.outputs, 200))


_Key = tuple[str, str, str, tuple[str, ...]]


def _key(node: ir.Node) -> _Key:
    return node.domain, node.op_type, node.name or "", tuple(value.name or "" for value in node.outputs)


class _Fates:
    """Region or reason of each node of a plan, found by what a node of an equal copy has in common with it."""

    def __init__(self, plan: Plan) -> None:
        self._waiting: dict[_Key, list[tuple[int, str]]] = {}
        for region in plan.regions:
            for node in region.nodes:
                self._waiting.setdefault(_key(node), []).append((region.index, ""))
        for fallback in plan.fallbacks:
            self._waiting.setdefault(_key(fallback.node), []).append((-1, fallback.reason))

    def take(self, node: ir.Node) -> tuple[int, str]:
        """Names may repeat in sibling bodies: each fate is given once."""
        waiting = self._waiting.get(_key(node))
        return waiting.pop(0) if waiting else (-1, "")


def _bodies_first(model: ir.Model) -> Iterator[ir.Node]:
    """Nodes in an order of execution: what a nested graph holds comes before its holder, and after what it captures.

    A body's nodes are given just before the holder, at any depth, without recursion.
    """
    stack: list[tuple[ir.Node | None, Iterator[ir.Node]]] = [(None, iter(model.graph))]
    while stack:
        holder, nodes = stack[-1]
        node = next(nodes, None)
        if node is None:
            stack.pop()
            if holder is not None:
                yield holder
            continue
        bodies = [inner for body in subgraphs(node) for inner in body]
        if bodies:
            stack.append((node, iter(bodies)))
        else:
            yield node


def _results(node: ir.Node) -> Iterator[ir.Value]:
    for body in subgraphs(node):
        yield from body.outputs


def _values(values: object, limit: int = _MAX_VALUES) -> tuple[str, ...]:
    items: list[ir.Value | None] = list(values)  # pyright: ignore[reportArgumentType,reportUnknownArgumentType,reportUnknownVariableType]
    shown = [value_text(value) for value in items[:limit]]
    return (*shown, f"… {len(items) - limit} more") if len(items) > limit else tuple(shown)


def value_text(value: ir.Value | None) -> str:
    """`name: float[n, 8]`; constants are marked."""
    if value is None:
        return "(absent)"
    kind = readable(format_type(value), 120)
    mark = "const " if value.const_value is not None else ""
    return f"{mark}{readable(value.name or '')}" + (f": {kind}" if kind else "")


def _attributes(node: ir.Node) -> tuple[str, ...]:
    items = list(node.attributes.items())[:_MAX_ATTRIBUTES]
    return tuple(f"{readable(name, 60)}={_attribute_text(attribute)}" for name, attribute in items)


def _attribute_text(attribute: ir.Attr) -> str:
    plain = (
        ir.AttributeType.INT,
        ir.AttributeType.FLOAT,
        ir.AttributeType.STRING,
        ir.AttributeType.INTS,
        ir.AttributeType.FLOATS,
        ir.AttributeType.STRINGS,
    )
    if attribute.is_ref():
        return "(reference)"
    if attribute.type not in plain:
        return f"({attribute.type.name.lower()})"
    content = attribute.value
    if isinstance(content, (list, tuple)) and len(content) > 16:  # pyright: ignore[reportUnknownArgumentType]
        content = [*content[:16], "…"]  # pyright: ignore[reportUnknownVariableType]
    return readable(str(content), 120)  # pyright: ignore[reportUnknownArgumentType]
