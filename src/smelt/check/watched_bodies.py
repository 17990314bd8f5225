"""Bodies of control flow on the values that a call gives them.

Input: the prepared model and the values whose contents are wanted. Output: models of bodies with those values as
outputs, and what feeds each; later, the values themselves. Invariant: a body runs whether or not the call takes its
branch; of a loop it is the first turn. A body that stock ONNX Runtime refuses with these values gives none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from smelt.check.bundle import Bundle
from smelt.ir.body import body_model
from smelt.ir.walk import nested_graphs, subgraphs
from smelt.runtime import Session, SessionSettings, session_for

Array = np.ndarray[Any, Any]
# How an input of a body is had: a number and its rank, or the key of a value and perhaps the axis it is cut along.
Feed = list[Any]


class Keys:
    """What values are called among those of a call: by name in the main graph, elsewhere by body too, since branches
    that do not meet may use one name twice."""

    def __init__(self, model: ir.Model) -> None:
        self.main = model.graph
        self.numbers = {graph: place for place, graph in enumerate(nested_graphs(model.graph))}

    def __call__(self, value: ir.Value) -> str:
        home = value.graph
        if home is None or home is self.main:
            return value.name or ""
        return f"{value.name}\0{self.numbers[home]}"


class WatchedBodies:
    """All bodies that hold, at any depth, a value of `wanted`. `outer` are values of the main graph that feed them."""

    def __init__(self, model: ir.Model, wanted: Iterable[ir.Value]) -> None:
        self.model = model
        self.key = Keys(model)
        self.wanted = dict.fromkeys(wanted)
        graphs = list(nested_graphs(model.graph))
        holders = {body: node for graph in graphs for node in graph for body in subgraphs(node)}
        homes = {value.graph for value in self.wanted}
        self.bodies: list[_Body] = []
        for graph in reversed(graphs[1:]):  # inner ones first: they want values of outer ones
            if graph in homes:
                self._add(graph, holders[graph], homes)

    def outer(self) -> list[ir.Value]:
        return [value for value in self.wanted if value.graph is self.model.graph]

    def write(self, bundle: Bundle) -> list[dict[str, Any]]:
        """What the examining process needs, outer bodies first."""
        jobs: list[dict[str, Any]] = []
        for place, body in enumerate(reversed(self.bodies)):
            path = bundle.add(body.model, f"body{place}.onnx", [value for value, _ in body.watched])
            keys = {value.name: key for value, key in body.watched}
            jobs.append({"file": path.name, "feeds": body.feeds, "keys": keys})
        return jobs

    def _add(self, graph: ir.Graph, node: ir.Node, homes: set[ir.Graph | None]) -> None:
        given = _given(node, graph)
        if given is None:
            return
        made = body_model(graph, self.model)
        inputs = list(made.model.graph.inputs)  # all of them: what is constant here is none of the model's later
        feeds: dict[str, Feed] = {}
        for value, (source, feed) in zip(inputs, given, strict=False):
            if source is None:
                feeds[value.name or ""] = feed
            elif source.const_value is not None:
                _make_constant(made.model.graph, value, source.const_value.numpy(), feed)
            else:
                feeds[value.name or ""] = [self._want(source, homes), *feed]
        for source, value in made.captured.items():
            feeds[value.name or ""] = [self._want(source, homes)]
        copies = zip(_node_outputs(graph), _node_outputs(made.model.graph), strict=True)
        watched = [(copy, self.key(value)) for value, copy in copies if value in self.wanted]
        pairs = zip(graph.inputs, inputs, strict=False)
        watched += [(copy, self.key(value)) for value, copy in pairs if value in self.wanted]
        self.bodies.append(_Body(made.model, feeds, watched))

    def _want(self, value: ir.Value, homes: set[ir.Graph | None]) -> str:
        self.wanted[value] = None
        homes.add(value.graph)
        return self.key(value)


@dataclass(frozen=True)
class _Body:
    model: ir.Model
    feeds: dict[str, Feed]
    watched: Sequence[tuple[ir.Value, str]]


def _node_outputs(graph: ir.Graph) -> list[ir.Value]:
    return [value for node in graph for value in node.outputs]


def _given(node: ir.Node, graph: ir.Graph) -> list[tuple[ir.Value | None, Feed]] | None:
    """For each input of a body the value that it has in the first turn; None for nodes that are not understood."""
    if node.op_type == "If":
        return []
    if node.op_type == "Loop":
        turn = [(None, [number, _rank(value)]) for number, value in zip((0, True), graph.inputs, strict=False)]
        return [*turn, *((value, Feed()) for value in node.inputs[2:])]
    count = node.attributes.get("num_scan_inputs")
    if node.op_type != "Scan" or count is None or count.is_ref() or len(node.inputs) != len(graph.inputs):
        return None
    carried = len(node.inputs) - count.as_int()
    axes_attribute = node.attributes.get("scan_input_axes")
    axes = list(axes_attribute.as_ints()) if axes_attribute is not None else [0] * count.as_int()
    return [(value, Feed() if place < carried else [axes[place - carried]]) for place, value in enumerate(node.inputs)]


def _rank(value: ir.Value) -> int:
    """Stock ONNX Runtime gives the number of a turn and its condition the rank that the body declares."""
    return 0 if value.shape is None else value.shape.rank()


def _make_constant(graph: ir.Graph, value: ir.Value, array: Array, cut: Feed) -> None:
    graph.inputs.remove(value)
    value.const_value = ir.tensor(np.take(array, 0, axis=cut[0]) if cut else array, name=value.name)
    graph.register_initializer(value)


@dataclass
class BodyRun:
    """A body in the examining process."""

    folder: Path
    job: Mapping[str, Any]
    threads: int

    def __call__(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Its values by key, where all that feeds it is known and stock ONNX Runtime takes it."""
        if self._session is None:
            return {}
        keys: Mapping[str, str] = self.job["keys"]
        try:
            feeds = {name: _fed(feed, values) for name, feed in self.job["feeds"].items()}
            known = {keys[name]: array for name, array in feeds.items() if name in keys}
            names = [name for name in keys if name not in feeds]
            return {**known, **dict(zip((keys[n] for n in names), self._session.run(names, feeds), strict=True))}
        except MemoryError:
            raise
        except Exception:  # onnxruntime raises many kinds
            return {}

    @cached_property
    def _session(self) -> Session | None:
        settings = SessionSettings(threads=self.threads, optimization="disable", log_severity=4, spin=False)
        try:
            return session_for(self.folder / self.job["file"], None, settings)
        except Exception:  # onnxruntime raises many kinds
            return None


def _fed(feed: Feed, values: Mapping[str, Any]) -> Any:
    if isinstance(feed[0], int):
        return np.full([1] * feed[1], feed[0], np.bool_ if isinstance(feed[0], bool) else np.int64)
    value = values[feed[0]]
    return np.asarray(np.take(value, 0, axis=feed[1]), order="C") if len(feed) > 1 else value
