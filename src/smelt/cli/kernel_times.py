"""Where the time of a region goes, by launch.

Input: a compilation, inputs that its model takes. Output: microseconds of each launch of each code. Invariant: timed is
a library of its own, built from the same source for profiling; the artifact's library has no clocks in it.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from smelt.base.config import Config
from smelt.base.errors import ToolchainError
from smelt.base.target import find_target
from smelt.codegen import Generated
from smelt.ir.records import Library
from smelt.runtime import SessionSettings, session_for
from smelt.toolchain import Cache, build, find_compiler, hash_headers

_RUNS: Final = 10
_WARMUP: Final = 2
_CALIBRATION_S: Final = 0.05


def launch_times(
    model: Path, generated: Generated, library: Library, feeds: Mapping[str, Any], settings: SessionSettings,
    config: Config,
) -> dict[str, tuple[float, ...]]:  # fmt: skip
    """For each code, the median time of each of its launches in one run of the model, over all of its regions."""
    try:
        clocked = _build(generated, library, config)
    except ToolchainError:
        return {}
    session = session_for(model, clocked.path, settings)
    clocks = _Clocks(clocked, generated)
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


def _build(generated: Generated, library: Library, config: Config) -> Library:
    """The same levels with clocks, also those that this machine does not run: the source's table names them all."""
    targets = tuple(map(find_target, library.targets))
    source = replace(generated.source, include_hash=hash_headers(generated.source.include_dirs))
    clocked = config.with_(cflags=f"{config.cflags} -DSMELT_PROFILE".strip())
    return build(source, targets, find_compiler(config), Cache(config.cache_dir), clocked)


class _Clocks:
    """The tables that a profiling library exports, one for each code and level."""

    def __init__(self, library: Library, generated: Generated) -> None:
        self._library = ctypes.CDLL(str(library.path))
        self._library.smelt_profile_clock.restype = ctypes.c_int64
        self._tables: dict[str, list[ctypes.Array[ctypes.c_int64]]] = {}
        for entry in generated.source.entries:
            launches = 1 + max((kernel.launch for kernel in entry.kernels), default=-1)
            names = [f"{entry.name}_ticks_{level}" for level in library.targets]
            self._tables[entry.name] = [(ctypes.c_int64 * launches).in_dll(self._library, name) for name in names]

    def reset(self) -> None:
        for tables in self._tables.values():
            for table in tables:
                ctypes.memset(table, 0, ctypes.sizeof(table))

    def read(self) -> dict[str, list[float]]:
        """Ticks since the last reset; only one level has run."""
        return {
            entry: [float(sum(ticks)) for ticks in zip(*tables, strict=True)] for entry, tables in self._tables.items()
        }

    def ticks_per_us(self) -> float:
        before, started = self._library.smelt_profile_clock(), time.perf_counter()
        time.sleep(_CALIBRATION_S)
        return (self._library.smelt_profile_clock() - before) / ((time.perf_counter() - started) * 1e6)
