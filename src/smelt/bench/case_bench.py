"""One model: what peers need is made once, then every size and number of threads is timed.

Input: cases that share one model file. Output: rows. Invariant: nothing is compiled again between sizes; a peer that
is missing or fails is a row that says so, never the end of the run.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from smelt.base import Config
from smelt.base.progress import Progress
from smelt.bench.cases import Case
from smelt.bench.contestant import Contestant, PeerError, choose_cpus
from smelt.bench.outcome import Row
from smelt.bench.peers import PEERS, Job, Peer, write_feeds
from smelt.bench.timing import Pace, Series, interleave
from smelt.bench.work import Work, count_work
from smelt.pipeline import Options, Result, compile_to

Array = np.ndarray[Any, Any]
Opened = list[tuple[str, Contestant]]
DEFAULT_PEERS: Final = ("ort", "smelt")
_FP32: Final = "-fp32"


@dataclass(frozen=True)
class Plan:
    """What a run measures. A peer that takes longer than `patience_s` to open is left out with that reason."""

    peers: tuple[str, ...] = DEFAULT_PEERS
    threads: tuple[int, ...] = (1, 2)
    pace: Pace = field(default_factory=Pace)
    options: Options = field(default_factory=Options)
    patience_s: float = 600.0


class Prepared:
    """The files that the peers read, one set per model."""

    def __init__(self, case: Case, plan: Plan, config: Config, progress: Progress, folder: Path) -> None:
        self.case, self.plan, self.config, self.progress, self.folder = case, plan, config, progress, folder
        self.feeds = folder / "feeds.npz"
        write_feeds(self.feeds, case.feeds)
        self.compiled: Result | None = None
        self.compile_s: float | None = None
        self.problems: dict[str, str] = {}
        self.models: dict[str, Path] = {}
        for name in dict.fromkeys(plan.peers):
            self._prepare(PEERS[name])

    def _prepare(self, peer: Peer) -> None:
        """Check that the peer can run this model and write the file that it reads."""
        if not peer.installed:
            self.problems[peer.name] = f"not installed: {', '.join(peer.packages)}"
        elif peer.needs_module and not self.case.module:
            self.problems[peer.name] = "runs torch modules, and this is a file"
        else:
            try:
                self.models[peer.name] = self._model_for(peer.name)
            except Exception as error:  # a row that says so
                self.problems[peer.name] = _first_line(error)

    def _model_for(self, peer: str) -> Path:
        if peer == "smelt" and self.case.artifact is not None:
            return self.case.artifact
        if peer.endswith(_FP32):
            return self._wide(peer)
        if peer == "smelt":
            started = time.monotonic()
            self.compiled = compile_to(
                self.case.model, self.folder / "artifact", self._options(), self.config, self.progress
            )
            self.compile_s = time.monotonic() - started
            return self.compiled.artifact.directory
        if peer == "ort-fused":
            return self._fused()
        return self.case.model

    def _options(self) -> Options:
        """In the precision that the case is about."""
        chosen = self.case.precision or self.plan.options.precision
        return replace(self.plan.options, precision=chosen)

    def _wide(self, peer: str) -> Path:
        if self.case.wide is None:
            raise PeerError("the file was not made from a float32 one")
        if peer == f"ort{_FP32}":
            return self.case.wide
        made = compile_to(self.case.wide, self.folder / peer, self.plan.options, self.config, self.progress)
        return made.artifact.directory

    def _fused(self) -> Path:
        if not self.case.fusion:
            raise PeerError("knows only transformers")
        path = self.folder / "fused" / "model.onnx"
        path.parent.mkdir()
        with Contestant(Job("ort-fused", self.case.model, self.feeds, 1), choose_cpus(1)) as worker:
            names = {"fusion": self.case.fusion, "module": self.case.module}
            worker.ask("fuse", model=str(self.case.model), path=str(path), **names)
        return path


class CaseBench:
    """One case at one size."""

    def __init__(self, case: Case, prepared: Prepared) -> None:
        self.case, self.prepared, self.plan = case, prepared, prepared.plan
        self.feeds = prepared.folder / "feeds.npz"
        write_feeds(self.feeds, case.feeds)
        self.work = _work_of(case)

    def rows(self, threads: int) -> list[Row]:
        with ExitStack() as stack:
            opened, rows = self._open_all(threads, stack)
            opened, series, failed = self._interleave(opened, threads)
            rows += failed
            # Without the first peer there is nothing to compare the others with.
            alone = not opened or opened[0][0] != self.plan.peers[0]
            baseline, reference = (None, []) if alone else (series[0], opened[0][1].outputs())
            measured = [
                self._row(label, contestant, found, baseline, reference, threads)
                for (label, contestant), found in zip(opened, series, strict=True)
            ]
            rows += against_best(measured, series)
        order = {label: place for place, label in enumerate(labels(self.plan.peers))}
        return sorted(rows, key=lambda row: order[row.peer])

    def _interleave(self, opened: Opened, threads: int) -> tuple[Opened, list[Series], list[Row]]:
        """Time all; when one fails on the way, start again without it."""
        failed: list[Row] = []
        while True:
            step = self.prepared.progress.task(f"{self.case.name}, {threads} threads", self.plan.pace.rounds)
            ours = {place for place, (_, one) in enumerate(opened) if one.name == "smelt"}
            try:
                return opened, interleave([one for _, one in opened], self.plan.pace, step, ours), failed
            except PeerError as error:
                culprits = [(label, one) for label, one in opened if one is error.contestant]
                if not culprits:
                    raise
                opened = [pair for pair in opened if pair not in culprits]
                failed += [self._problem(label, threads, _first_line(error)) for label, _ in culprits]

    def _problem(self, label: str, threads: int, problem: str) -> Row:
        return Row(self.case.name, self.case.about, label, threads, problem)

    def _open_all(self, threads: int, stack: ExitStack) -> tuple[Opened, list[Row]]:
        """Those that compile are opened side by side; the others one by one, since their time to load is shown."""
        jobs = {
            label: Job(name, self.prepared.models[name], self.feeds, threads, self.case.module)
            for label, name in zip(labels(self.plan.peers), self.plan.peers, strict=True)
            if name not in self.prepared.problems
        }
        patience_s = self.plan.patience_s
        compiling = {label: Contestant(job, choose_cpus(threads)) for label, job in jobs.items() if job.compiles}
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            waiting = {label: pool.submit(_try_load, one, patience_s) for label, one in compiling.items()}
            found = {label: future.result() for label, future in waiting.items()}
        for label, job in jobs.items():
            if not job.compiles:
                found[label] = _try_load(Contestant(job, choose_cpus(threads)), patience_s)
        opened: Opened = []
        rows: list[Row] = []
        for label, name in zip(labels(self.plan.peers), self.plan.peers, strict=True):
            one = found.get(label) or self.prepared.problems[name]
            if isinstance(one, str):
                rows.append(self._problem(label, threads, one))
            else:
                opened.append((label, stack.enter_context(one)))
        return opened, rows

    def _row(
        self,
        label: str,
        contestant: Contestant,
        series: Series,
        baseline: Series | None,
        reference: list[Array],
        threads: int,
    ) -> Row:
        ours = contestant.name == "smelt"
        return Row(
            self.case.name,
            self.case.about,
            label,
            threads,
            median_ms=series.median * 1e3,
            p50_ms=series.percentile(50) * 1e3,
            p90_ms=series.percentile(90) * 1e3,
            p99_ms=series.percentile(99) * 1e3,
            load_s=contestant.load_s,
            first_ms=contestant.first_s * 1e3,
            peak_mb=contestant.memory()[1] / 1e6,
            ratio=None if baseline is None or series is baseline else series.ratio_to(baseline),
            error=None if baseline is None or series is baseline else _error(contestant.outputs(), reference),
            tokens_per_s=self.case.tokens / series.median if self.case.tokens else None,
            work=self.work,
            compile_s=self.prepared.compile_s if ours else None,
            coverage=_coverage(self.prepared.compiled) if ours else "",
            behind=len(series.rounds) < self.plan.pace.rounds,
        )


def against_best(rows: Sequence[Row], series: Sequence[Series]) -> list[Row]:
    """Rows of smelt also compared with the fastest of the others; with fewer than two others, `ratio` says it all."""
    others = [(found.median, row.peer, found) for row, found in zip(rows, series, strict=True) if not row.is_ours]
    if len(others) < 2:
        return list(rows)
    _, name, best = min(others, key=lambda one: one[0])
    return [
        replace(row, best=name, vs_best=found.ratio_to(best)) if row.is_ours else row
        for row, found in zip(rows, series, strict=True)
    ]


def labels(peers: Sequence[str]) -> list[str]:
    """A peer that is given twice is told apart: `ort`, `ort#2`."""
    return [name if (n := peers[:place].count(name)) == 0 else f"{name}#{n + 1}" for place, name in enumerate(peers)]


def _try_load(contestant: Contestant, patience_s: float) -> Contestant | str:
    try:
        contestant.load(patience_s)
    except PeerError as error:
        return _first_line(error)
    return contestant


def _work_of(case: Case) -> Work | None:
    try:
        found = count_work(case.model, case.feeds)
        if case.wide is None or case.precision:
            return replace(found, halved=case.precision == "bf16")
        return replace(count_work(case.wide, case.feeds), bytes=found.bytes, bytewise=True)
    except Exception:  # without a count there is no share, and nothing else is lost
        return None


def _error(outputs: Sequence[Array], reference: Sequence[Array]) -> float | None:
    """The largest difference from the baseline's result, relative to its size there plus its root mean square."""
    worst = 0.0
    for ours, theirs in zip(outputs, reference, strict=False):
        if ours.shape != theirs.shape:
            return math.inf
        if ours.size == 0:
            continue
        wide = theirs.astype(np.float64)
        difference = np.abs(ours.astype(np.float64) - wide) / (np.abs(wide) + np.sqrt(np.mean(wide * wide)) + 1e-30)
        largest = float(np.max(difference))
        worst = math.inf if math.isnan(largest) else max(worst, largest)
    return worst


def _coverage(result: Result | None) -> str:
    if result is None:
        return ""
    taken = sum(len(region.nodes) for region in result.plan.regions)
    return f"{taken} of {taken + len(result.plan.fallbacks)} nodes in {_counted(len(result.plan.regions))}"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


def _counted(regions: int) -> str:
    return "1 region" if regions == 1 else f"{regions} regions"
