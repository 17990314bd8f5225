"""Where the time of a region goes, by launch.

Input: a compilation, inputs that its model takes. Output: microseconds of each launch of each code. Invariant: timed is
a library of its own, built from the same source for profiling; the artifact's library has no clocks in it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from smelt.base.config import Config
from smelt.base.errors import ToolchainError
from smelt.bench.clocked import clocked_library
from smelt.codegen import launch_counts
from smelt.ir.backend import Generated
from smelt.ir.records import Library
from smelt.runtime import LaunchClocks, SessionSettings, session_for

_RUNS: Final = 10
_WARMUP: Final = 2


def launch_times(
    model: Path, generated: Generated, library: Library, feeds: Mapping[str, Any], settings: SessionSettings,
    config: Config,
) -> dict[str, tuple[float, ...]]:  # fmt: skip
    """For each code, the median time of each of its launches in one run of the model, over all of its regions."""
    try:
        clocked = clocked_library(generated, library, config)
    except ToolchainError:
        return {}
    session = session_for(model, clocked.path, settings)
    clocks = LaunchClocks(clocked.path, clocked.targets, launch_counts(generated.source))
    rounds: list[dict[str, list[float]]] = []
    for place in range(_WARMUP + _RUNS):
        clocks.reset()
        session.run(None, dict(feeds))
        if place >= _WARMUP:
            rounds.append(clocks.read())
    per_us = clocks.ticks_per_us()
    return {
        entry: tuple(statistics.median(one[entry][k] for one in rounds) / per_us for k in range(len(rounds[0][entry])))
        for entry in rounds[0]
    }
