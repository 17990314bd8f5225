"""A compilation run with one thread, task by task: how it would scale.

Input: a compilation, feeds, numbers of threads. Output: `Scaling`. Invariant: tasks are timed one by one with
work cut for each number of threads, so a machine with few cores can tell of many; wall times are measured
for as many threads as there are processors, with the artifact's own library.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from smelt.base import Config, ConfigError
from smelt.base.cpus import find_cpus
from smelt.base.target import host_level
from smelt.bench.cases import Case
from smelt.bench.clocked import clocked_library
from smelt.bench.roofline import measure_limits
from smelt.codegen import launch_counts
from smelt.ir.backend import Generated
from smelt.ir.kernel.index import evaluate
from smelt.ir.load import load_model
from smelt.ir.records import Library
from smelt.pipeline import Options, compile_to
from smelt.report import Costs, Scaling, scaling_of
from smelt.runtime import LaunchTracer, SessionSettings, session_for

MOST_THREADS: Final = 128
_RUNS: Final = 7
_WALL_SECONDS: Final = 3.0
_IN_A_ROW: Final = 4
_MEMORY_THREADS: Final = 4  # a machine's memory is taken to serve so many threads at full speed, unless told


@dataclass(frozen=True)
class Subject:
    """What was compiled, and how it is run: the artifact's model, and `sizes` of its named dims."""

    model: Path
    generated: Generated
    library: Library
    feeds: Mapping[str, Any]
    sizes: Mapping[str, int]
    shapes: str = ""


def parse_counts(text: str) -> tuple[int, ...]:
    """`1,2,8` -> numbers of threads, in order."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() and 1 <= int(part) <= MOST_THREADS for part in parts):
        raise ConfigError(
            "SM-CONFIG-001", f"threads {text!r} are not counts from 1 to {MOST_THREADS}", hint="Such as 1,2,4,8,16."
        )
    return tuple(sorted({int(part) for part in parts}))


def named_sizes(stock: Path, feeds: Mapping[str, Any]) -> dict[str, int]:
    """The sizes that the feeds give to the model's named dims, under the names that kernels use."""
    sizes: dict[str, int] = {}
    for value in load_model(stock).graph.inputs:
        array = feeds.get(value.name or "")
        for dim, size in zip(value.shape or (), np.shape(array) if array is not None else (), strict=False):
            if not isinstance(dim, int) and dim.value:
                sizes[f"d:{dim.value}"] = size
    return sizes


def measure_scaling(subject: Subject, counts: Sequence[int], config: Config, gbytes: float = 0.0) -> Scaling:
    """`gbytes` a second are what the memory of the machine gives to all threads; 0: several times what one reads."""
    clocked = clocked_library(subject.generated, subject.library, config)
    tracer = LaunchTracer(clocked.path, clocked.targets, launch_counts(subject.generated.source))
    real = [n for n in counts if n <= find_cpus().count]
    cores = min(2, find_cpus().count)
    runs = {alone: _runner(subject, clocked.path, alone) for alone in (1, cores)}
    traces = {n: tracer.trace(n, runs[min(n, cores)], _RUNS, min(n, cores)) for n in sorted({1, *counts})}
    barriers = {n: tracer.barrier_us(n, _runner(subject, clocked.path, n)) for n in sorted({2, *real} - {1})}
    read = measure_limits(1, config).read / 1e9
    costs = Costs(barriers, read, gbytes or _MEMORY_THREADS * read)
    walls = _walls(subject, real)
    return scaling_of(traces, _names(subject.generated), _moved(subject), costs, walls, subject.shapes)


def scale_case(case: Case, counts: Sequence[int], config: Config) -> Scaling:
    """A case of a suite, compiled for this machine."""
    level = host_level()
    with tempfile.TemporaryDirectory(prefix="smelt-scaling-") as folder:
        options = Options(levels=(level.name,) if level is not None else (), verify=False)
        made = compile_to(case.model, Path(folder) / "artifact", options, config)
        if made.generated is None or made.library is None:
            raise ConfigError("SM-CONFIG-001", f"no kernels were made for {case.name}")
        sizes = named_sizes(case.model, case.feeds)
        subject = Subject(made.artifact.model_path, made.generated, made.library, case.feeds, sizes, case.name)
        return measure_scaling(subject, counts, config)


def _runner(subject: Subject, library: Path, threads: int) -> Callable[[], object]:
    session, feeds = session_for(subject.model, library, SessionSettings(threads=threads)), dict(subject.feeds)
    return lambda: session.run(None, feeds)


def _walls(subject: Subject, counts: Sequence[int]) -> dict[int, float]:
    """The lower quartile of each in microseconds, in turns: other processes only ever add to a run."""
    runs = {n: _runner(subject, subject.library.path, n) for n in counts}
    walls: dict[int, list[float]] = {n: [] for n in counts}
    started = time.perf_counter()
    while not all(map(len, walls.values())) or time.perf_counter() - started < _WALL_SECONDS * len(counts):
        for threads, run in runs.items():
            run()  # while threads of the session before still wait for work
            for _ in range(_IN_A_ROW):
                before = time.perf_counter()
                run()
                walls[threads].append((time.perf_counter() - before) * 1e6)
    return {n: statistics.quantiles(wall, n=4)[0] for n, wall in walls.items()}


def _names(generated: Generated) -> dict[tuple[str, int], tuple[str, str]]:
    """By launch, the name of its first kernel, which launches of other layers share, and the kinds of all."""
    names: dict[tuple[str, int], tuple[str, str]] = {}
    for entry in generated.source.entries:
        for info in entry.kernels:
            name, kinds = names.get((entry.name, info.launch), (info.name, info.kind))
            more = kinds if info.kind in kinds.split(", ") else f"{kinds}, {info.kind}"
            names[entry.name, info.launch] = (name, more)
    return names


def _moved(subject: Subject) -> dict[tuple[str, int], float]:
    """Bytes of each launch, where its sizes are known. What stages of tile fusion hand on stays in a cache."""
    moved: dict[tuple[str, int], float] = {}
    codes = dict(zip(subject.generated.entry_of, subject.generated.codes, strict=True))
    for entry, code in codes.items():
        for info, (_, count) in zip(code.info, code.work, strict=False):
            if info.kind == "window" and not info.launcher:
                continue
            try:
                found = float(evaluate(count, subject.sizes))
            except (KeyError, ZeroDivisionError):
                continue
            moved[entry, info.launch] = moved.get((entry, info.launch), 0.0) + found
    return moved
