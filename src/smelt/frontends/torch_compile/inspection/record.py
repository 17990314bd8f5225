"""What became of the graphs that torch handed over.

Input: notes from lowering and from calls. Output: `Record`, which `smelt.explain` prints. Invariant: every graph that
was seen is in the record, with the nodes that stayed in torch and why; reports are kept per compiled function.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass
class PartReport:
    """One session: how many ATen nodes it took over, and what became of its ONNX nodes, counted after the passes.

    `rules`: passes and rules that were applied, with count and seconds.
    """

    nodes: int
    onnx_nodes: int = 0
    in_kernels: int = 0
    kernels: bool = False
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list[str])
    ort_fallbacks: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    rules: dict[str, tuple[int, float]] = field(default_factory=dict[str, tuple[int, float]])
    failures: int = 0


@dataclass(frozen=True)
class FallbackNode:
    """A node that torch computes, and why."""

    name: str
    target: str
    reason: str
    source: str = ""


@dataclass
class GraphReport:
    """One graph of AOTAutograd's."""

    kind: str
    nodes: int
    parts: list[PartReport] = field(default_factory=list[PartReport])
    fallback_nodes: list[FallbackNode] = field(default_factory=list[FallbackNode])
    fallback: str = ""
    seconds: float = 0.0

    @property
    def taken(self) -> int:
        return sum(part.nodes for part in self.parts)

    @property
    def whole(self) -> bool:
        """All of the graph runs in ONNX Runtime."""
        return not self.fallback_nodes and not self.fallback


@dataclass
class Record:
    """Every graph of one or more compiled functions, in the order they came."""

    graphs: list[GraphReport] = field(default_factory=list[GraphReport])

    @property
    def fallbacks(self) -> list[str]:
        return [graph.fallback for graph in self.graphs if graph.fallback]

    @property
    def fallback_nodes(self) -> Counter[tuple[str, str]]:
        """(target, reason) -> how many nodes stayed in torch for it."""
        return Counter((node.target, node.reason) for graph in self.graphs for node in graph.fallback_nodes)


_lock: Final = threading.Lock()
_listeners: list[Record] = []
_all: Final = Record()
_MOST: Final = 1000


def report(graph: GraphReport) -> None:
    """Enter a graph into the record of the process and of every listener."""
    with _lock:
        _all.graphs.append(graph)
        del _all.graphs[:-_MOST]
        for listener in _listeners:
            listener.graphs.append(graph)


def process_record() -> Record:
    """The graphs of this process, the latest thousand."""
    with _lock:
        return Record(list(_all.graphs))


class Listening:
    """`with Listening() as record:` collects what is compiled meanwhile."""

    def __enter__(self) -> Record:
        self._record = Record()
        with _lock:
            _listeners.append(self._record)
        return self._record

    def __exit__(self, *_: Any) -> None:
        with _lock:
            _listeners.remove(self._record)
