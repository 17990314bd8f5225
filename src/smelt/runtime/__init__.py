"""Artifact -> Executable: live ONNX Runtime sessions. Needs numpy and onnxruntime alone; never compiles.

The names below are loaded at first use: a program under the session hook starts with few of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smelt.runtime.artifact import FORMAT, MANIFEST, open_artifact, read_manifest, trusted_library
    from smelt.runtime.call_file import read_call, write_call
    from smelt.runtime.executable import Executable
    from smelt.runtime.feeds import (
        FeedChecker,
        InputSpec,
        OutputSpec,
        declared_inputs,
        disagreement,
        input_specs,
        output_specs,
        run_once,
    )
    from smelt.runtime.launch_clocks import LaunchClocks
    from smelt.runtime.launch_trace import LaunchTracer, Trace, TracedLaunch
    from smelt.runtime.own_sessions import is_own_session, own_sessions
    from smelt.runtime.profile import NodeTime, node_times, read_profile
    from smelt.runtime.session import (
        CPU_PROVIDERS,
        Session,
        SessionSettings,
        available_providers,
        ort_version,
        session_for,
    )
    from smelt.runtime.torch_binding import Feed, Fetch, TorchRunner, integer_feed, number_feed, runner_of
    from smelt.runtime.torch_device import Gpu, gpu_of

_HOMES = {
    "artifact": ("FORMAT", "MANIFEST", "open_artifact", "read_manifest", "trusted_library"),
    "call_file": ("read_call", "write_call"),
    "executable": ("Executable",),
    "feeds": (
        "FeedChecker",
        "InputSpec",
        "OutputSpec",
        "declared_inputs",
        "disagreement",
        "input_specs",
        "output_specs",
        "run_once",
    ),
    "launch_clocks": ("LaunchClocks",),
    "launch_trace": ("LaunchTracer", "Trace", "TracedLaunch"),
    "own_sessions": ("is_own_session", "own_sessions"),
    "profile": ("NodeTime", "node_times", "read_profile"),
    "session": (
        "CPU_PROVIDERS",
        "Session",
        "SessionSettings",
        "available_providers",
        "ort_version",
        "session_for",
    ),
    "torch_device": ("Gpu", "gpu_of"),
    "torch_binding": ("Feed", "Fetch", "TorchRunner", "integer_feed", "number_feed", "runner_of"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "CPU_PROVIDERS",
    "FORMAT",
    "MANIFEST",
    "Executable",
    "Feed",
    "FeedChecker",
    "Fetch",
    "Gpu",
    "InputSpec",
    "LaunchClocks",
    "LaunchTracer",
    "NodeTime",
    "OutputSpec",
    "Session",
    "SessionSettings",
    "TorchRunner",
    "Trace",
    "TracedLaunch",
    "available_providers",
    "declared_inputs",
    "disagreement",
    "gpu_of",
    "input_specs",
    "integer_feed",
    "is_own_session",
    "node_times",
    "number_feed",
    "open_artifact",
    "ort_version",
    "output_specs",
    "own_sessions",
    "read_call",
    "read_manifest",
    "read_profile",
    "run_once",
    "runner_of",
    "session_for",
    "trusted_library",
    "write_call",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
