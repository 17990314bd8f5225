"""What a pass changed, place by place, as text files.

Input: a model before and after a pass. Output: a file per application: the nodes that went and the nodes that came,
with the neighbours that now read something else. Invariant: changed nodes that share a value belong to one application;
nothing is read from files, and a file is never overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from smelt.ir.printer import format_node
from smelt.ir.walk import model_nodes
from smelt.passes.rewriter.outcome import Outcome, Pass

_MOST = 500  # files of one pass in one round


@dataclass(frozen=True)
class _Line:
    """`key`: what is compared. Types and shapes are not: they are derived anew in every round."""

    text: str
    key: tuple[object, ...]
    values: frozenset[str]


Snapshot = dict[ir.Node, _Line]


class Applications:
    """Writes the applications of passes to a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def run(self, name: str, step: Pass, model: ir.Model) -> Outcome:
        before = _snapshot(model)
        outcome = step(model)
        after = _snapshot(model)
        groups = _groups(before, after)
        for gone, come in groups[:_MOST]:
            self._write(name, [before[n].text for n in gone], [after[n].text for n in come])
        if len(groups) > _MOST:
            self._write(name, [], [f"... and {len(groups) - _MOST} more places"])
        return outcome

    def _write(self, name: str, gone: Sequence[str], come: Sequence[str]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        while (path := self._folder / f"{self._count:04d}-{name}.txt").exists():
            self._count += 1
        self._count += 1
        lines = [f"{name}", "before", *(f"  {line}" for line in gone), "after", *(f"  {line}" for line in come)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _snapshot(model: ir.Model) -> Snapshot:
    return {node: _line(node) for node in model_nodes(model, functions=True)}


def _line(node: ir.Node) -> _Line:
    values = frozenset(v.name or "" for v in (*node.inputs, *node.outputs) if v is not None and v.producer())
    names = tuple(None if v is None else v.name for v in (*node.inputs, *node.outputs))
    attributes = tuple((name, str(attribute)) for name, attribute in node.attributes.items())
    return _Line(format_node(node), (names, attributes), values)


def _groups(before: Snapshot, after: Snapshot) -> list[tuple[list[ir.Node], list[ir.Node]]]:
    """(nodes before, nodes after) of each application."""
    gone = [node for node in before if node not in after]
    come = [node for node in after if node not in before]
    changed = [node for node in before if node in after and before[node].key != after[node].key]
    values = {**{n: before[n].values for n in gone}, **{n: after[n].values for n in come}}
    label = _connected(values)
    for node in changed:  # a neighbour belongs to the first place that it touches; alone, it is a place of its own
        near = [n for n in values if (before[node].values | after[node].values) & values[n]]
        label[node] = label[near[0]] if near else len(label) + len(before)
    places: dict[int, tuple[list[ir.Node], list[ir.Node]]] = {}
    for node in (*gone, *changed):
        places.setdefault(label[node], ([], []))[0].append(node)
    for node in (*come, *changed):
        places.setdefault(label[node], ([], []))[1].append(node)
    return list(places.values())


def _connected(values: Mapping[ir.Node, frozenset[str]]) -> dict[ir.Node, int]:
    """A number per node; nodes that share a value have the same."""
    label: dict[ir.Node, int] = {}
    owners: dict[str, list[ir.Node]] = {}
    for node, names in values.items():
        for name in names:
            owners.setdefault(name, []).append(node)
    for number, start in enumerate(values):
        pending = [start]
        while pending:
            node = pending.pop()
            if node in label:
                continue
            label[node] = number
            pending.extend(near for name in values[node] for near in owners[name] if near not in label)
    return label
