"""Where the time of a run goes.

Input: an artifact, its stock model, and what to feed them. Output: `Times`. Invariant: both run on the same inputs,
one after the other in alternating rounds, with ONNX Runtime's optimizers on; wall times are taken without the
profiler, which costs time itself.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from smelt.base.config import Config
from smelt.base.errors import ToolchainError
from smelt.bench.roofline import measure_limits
from smelt.bench.scaling import Subject, measure_scaling, named_sizes
from smelt.cli.artifact_report import domain_of, regions_by_node
from smelt.cli.compiling import Compilation
from smelt.cli.feeds import feed_attempts, first_that_runs
from smelt.cli.kernel_times import launch_times
from smelt.cli.options import shape_text
from smelt.ir.kernel import Ix
from smelt.ir.kernel.index import evaluate
from smelt.ir.load import load_model
from smelt.report import Launch, Peaks, Scaling, Times, by_op, divide
from smelt.runtime import NodeTime, SessionSettings, node_times, open_artifact, run_once, session_for

_ROUNDS = 10
_ROUND_SECONDS = 8.0


@dataclass(frozen=True)
class RunRequest:
    """What to feed, and with how many threads; `counts` are what to predict for, with `bandwidth` GB/s."""

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    files: Mapping[str, Path] = field(default_factory=dict[str, Path])
    seed: int = 0
    threads: int = 0
    counts: tuple[int, ...] = ()
    bandwidth: float = 0.0


def profile_artifact(folder: Path, stock: Path | None, request: RunRequest) -> Times:
    """Profile an artifact, and the model it was made from where that is given."""
    opened = open_artifact(folder)
    region_of = regions_by_node(load_model(opened.model), domain_of(opened.manifest))
    return _profile(opened.model, opened.library, region_of, stock, request)[0]


def profile_compilation(made: Compilation, stock: Path, request: RunRequest) -> Times:
    """Profile what was just compiled against its model, with the least time that each region could take."""
    opened = open_artifact(made.result.artifact.directory)
    generated = made.result.generated
    names = dict(zip((r.index for r in generated.regions), generated.entry_of, strict=True)) if generated else {}
    # `rewrite` names a region's node after its entry and index.
    region_of = {f"{entry}_{index}": index for index, entry in names.items()}
    times, feeds = _profile(opened.model, opened.library, region_of, stock, request)
    sizes = named_sizes(stock, feeds)
    config = Config.from_env()
    peaks = _measure_peaks(request.threads, config)
    if generated is None or made.result.library is None:
        return replace(times, peaks=peaks)
    settings = SessionSettings(threads=request.threads)
    measured = launch_times(opened.model, generated, made.result.library, feeds, settings, config)
    bounds: dict[int, float] = {}
    launches: dict[str, list[Launch]] = {entry: [Launch(us) for us in spent] for entry, spent in measured.items()}
    for region, entry, code in zip(generated.regions, generated.entry_of, generated.codes, strict=True):
        bound = [bound_us(flops, moved, sizes, peaks) for flops, moved in code.work]
        if bound and all(part is not None for part in bound):
            bounds[region.index] = sum(part or 0.0 for part in bound)
        for info, part in zip(code.info, bound, strict=False) if entry in launches else ():
            launches[entry][info.launch] = launches[entry][info.launch].with_bound(part)
    known = {entry: tuple(spent) for entry, spent in launches.items()}
    return replace(times, bounds=bounds, peaks=peaks, launches=known)


def scale_compilation(made: Compilation, stock: Path, request: RunRequest) -> Scaling | None:
    """How what was just compiled would scale; None where no kernels were made."""
    opened = open_artifact(made.result.artifact.directory)
    generated, library = made.result.generated, made.result.library
    if generated is None or library is None:
        return None
    session = session_for(stock, None, SessionSettings())
    attempts = feed_attempts(load_model(stock), request.shapes, request.files, request.seed)
    feeds, _ = first_that_runs(attempts, lambda given: run_once(session, given))
    shapes = shape_text({name: np.shape(array) for name, array in feeds.items()})
    subject = Subject(opened.model, generated, library, feeds, named_sizes(stock, feeds), shapes)
    return measure_scaling(subject, request.counts, Config.from_env(), request.bandwidth)


def _profile(
    model: Path, library: Path | None, region_of: Mapping[str, int], stock: Path | None, request: RunRequest
) -> tuple[Times, dict[str, Any]]:
    settings = SessionSettings(threads=request.threads)
    ours = session_for(model, library, settings)
    theirs = session_for(stock, None, settings) if stock is not None else None
    first = theirs or ours
    attempts = feed_attempts(load_model(stock or model), request.shapes, request.files, request.seed)
    feeds, _ = first_that_runs(attempts, lambda made: run_once(first, made))
    runs = [lambda: ours.run(None, feeds)] + ([lambda: theirs.run(None, feeds)] if theirs is not None else [])
    walls = _interleaved(runs)
    regions, left = divide(_timed(model, feeds, library, settings), region_of)
    by = by_op(_timed(stock, feeds, None, settings)) if stock is not None else {}
    shapes = shape_text({name: np.shape(array) for name, array in feeds.items()})
    stock_us = walls[1] if len(walls) > 1 else None
    return Times(regions, left, by, walls[0], stock_us, shapes=shapes, threads=request.threads), feeds


def _timed(
    model: Path, feeds: Mapping[str, Any], library: Path | None, settings: SessionSettings
) -> tuple[NodeTime, ...]:
    return node_times(model, feeds, library, settings, runs=_ROUNDS)


def _interleaved(runs: list[Callable[[], Any]]) -> list[float]:
    """Median wall time of each in microseconds, taken in turns; stops early where runs are long."""
    for run in runs:
        run()
    walls: list[list[float]] = [[] for _ in runs]
    started = time.perf_counter()
    for _ in range(2 * _ROUNDS):
        for run, wall in zip(runs, walls, strict=True):
            before = time.perf_counter()
            run()
            wall.append((time.perf_counter() - before) * 1e6)
        if time.perf_counter() - started > _ROUND_SECONDS:
            break
    return [statistics.median(wall) for wall in walls]


def bound_us(operations: Ix, moved_bytes: Ix, sizes: Mapping[str, int], peaks: Peaks | None) -> float | None:
    """The least time of a kernel, whose count includes its products; None where a size is not known."""
    if peaks is None:
        return None
    try:
        flops, moved = evaluate(operations, sizes), evaluate(moved_bytes, sizes)
    except (KeyError, ZeroDivisionError):
        return None
    return peaks.bound_us(flops, moved)


def _measure_peaks(threads: int, config: Config) -> Peaks | None:
    """Measured by compiled loops; None where no compiler is left to compile them."""
    try:
        limits = measure_limits(threads or len(os.sched_getaffinity(0)), config)
    except ToolchainError:
        return None
    return Peaks(limits.fma / 1e9, limits.read / 1e9, limits.cached_copy / 1e9)
