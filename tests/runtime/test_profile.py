"""Time per node from ONNX Runtime's profiler."""

import json
from pathlib import Path

import numpy as np

from smelt.runtime import node_times, read_profile


def test_every_node_is_timed_once_per_run(toy_model: bytes, toy_library: Path) -> None:
    a = np.ones((1000, 3), np.float32)
    times = node_times(toy_model, {"a": a, "b": a}, toy_library, runs=5, warmup=2)
    assert [(node.name, node.op_type, node.calls) for node in times] == [("in_region", "add", 5), ("left", "Add", 5)]
    for node in times:
        assert 0 <= node.min_us <= node.median_us <= node.total_us
        assert node.provider == "CPUExecutionProvider"


def event(name: str, start: int, duration: int, **arguments: str) -> dict[str, object]:
    return {"cat": "Node", "name": name, "ts": start, "dur": duration, "args": {"op_name": "Mul", **arguments}}


def test_warm_up_and_other_events_are_left_out(tmp_path: Path) -> None:
    events = [
        {"cat": "Session", "name": "model_run", "ts": 0, "dur": 999, "args": {}},
        event("b_fence_before", 0, 500),
        *(event("b_kernel_time", 10 * i, duration, node_index="1") for i, duration in enumerate((900, 4, 2, 6))),
        event("a_kernel_time", 5, 7, node_index="0"),
    ]
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(events))
    b, a = read_profile(path, skip_calls=1)
    assert (b.name, b.calls, b.total_us, b.median_us, b.min_us) == ("b", 3, 12, 4, 2)
    assert (a.name, a.calls, a.total_us) == ("a", 1, 7)  # ran once only: its warm-up is all there is
