"""ONNX Runtime's profile -> time per node.

Input: a profile file, or a model with feeds to run. Output: one `NodeTime` per node that ran, in execution order.
Invariant: times are kernel times in microseconds, as ONNX Runtime measured them, of the optimized graph's nodes.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

from smelt.runtime.session import SessionSettings, session_for

_KERNEL_SUFFIX: Final = "_kernel_time"


@dataclass(frozen=True)
class NodeTime:
    """One node: how often it ran and for how long."""

    name: str
    op_type: str
    index: int
    provider: str
    calls: int
    total_us: float
    median_us: float
    min_us: float


def read_profile(path: Path, skip_calls: int = 0) -> tuple[NodeTime, ...]:
    """The nodes of a profile file; the first `skip_calls` calls of each are left out as warm-up."""
    events = cast("list[dict[str, Any]]", json.loads(path.read_bytes()))
    calls: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for event in _kernel_events(events):
        key = (int(event["args"].get("node_index", 0)), str(event["name"]))
        calls.setdefault(key, []).append(event)
    ordered = sorted(calls.values(), key=lambda group: float(group[0].get("ts", 0)))
    return tuple(_node_time(group, skip_calls) for group in ordered)


def node_times(
    model: bytes | str | Path,
    feeds: Mapping[str, Any],
    library: Path | None = None,
    settings: SessionSettings | None = None,
    *,
    runs: int = 10,
    warmup: int = 2,
) -> tuple[NodeTime, ...]:
    """Run the model under the profiler and read what each node took."""
    with tempfile.TemporaryDirectory(prefix="smelt-profile-") as folder:
        settings = replace(settings or SessionSettings(), profile_prefix=Path(folder) / "run")
        session = session_for(model, library, settings)
        for _ in range(warmup + runs):
            session.run(None, dict(feeds))
        return read_profile(Path(session.end_profiling()), warmup)


def _kernel_events(events: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    return (e for e in events if e.get("cat") == "Node" and str(e.get("name", "")).endswith(_KERNEL_SUFFIX))


def _node_time(events: list[dict[str, Any]], skip_calls: int) -> NodeTime:
    kept = events[skip_calls:] or events[-1:]
    times = [float(event["dur"]) for event in kept]
    arguments = kept[0]["args"]
    return NodeTime(
        name=str(kept[0]["name"]).removesuffix(_KERNEL_SUFFIX),
        op_type=str(arguments.get("op_name", "")),
        index=int(arguments.get("node_index", 0)),
        provider=str(arguments.get("provider", "")),
        calls=len(times),
        total_us=sum(times),
        median_us=statistics.median(times),
        min_us=min(times),
    )
