"""Cases and peers -> rows of the table.

Input: cases, peers, numbers of threads. Output: a `Row` per case, peer and number of threads. Invariant: a peer that
is missing or fails is a row that says so, never the end of the run; ratios and errors are against the first peer.
"""

from __future__ import annotations

import math
import platform
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from smelt.base import Config, ConfigError, SmeltError
from smelt.base.progress import Progress, Silent
from smelt.base.target import host_level
from smelt.bench.cases import Case
from smelt.bench.contestant import Contestant, PeerError, choose_cpus
from smelt.bench.paired import Ratio
from smelt.bench.peers import PEERS, Job, Peer, write_feeds
from smelt.bench.roofline import Limits, measure_limits
from smelt.bench.timing import Pace, Series, interleave
from smelt.bench.work import Work, count_work
from smelt.pipeline import Options, Result, compile_to

Array = np.ndarray[Any, Any]
Opened = list[tuple[str, Contestant]]
DEFAULT_PEERS: Final = ("ort", "smelt")
_IN_CACHE_BYTES: Final = 8 << 20


@dataclass(frozen=True)
class Plan:
    """What a run measures."""

    peers: tuple[str, ...] = DEFAULT_PEERS
    threads: tuple[int, ...] = (1, 2)
    pace: Pace = field(default_factory=Pace)
    options: Options = field(default_factory=Options)


@dataclass(frozen=True)
class Row:
    """One peer on one case. Without `problem`, every figure that applies is there."""

    case: str
    about: str
    peer: str
    threads: int
    problem: str = ""
    median_ms: float | None = None
    p50_ms: float | None = None
    p90_ms: float | None = None
    p99_ms: float | None = None
    load_s: float | None = None
    first_ms: float | None = None
    peak_mb: float | None = None
    ratio: Ratio | None = None
    error: float | None = None
    share: float | None = None
    bound: str = ""
    compile_s: float | None = None
    coverage: str = ""


@dataclass(frozen=True)
class Outcome:
    """All rows of a run with the machine that they were measured on."""

    machine: str
    limits: tuple[Limits, ...]
    rows: tuple[Row, ...]


def find_peers(names: Iterable[str]) -> tuple[str, ...]:
    """Names as the user gave them, checked; `all` stands for every peer that is installed."""
    chosen = [name.strip() for name in names if name.strip()]
    if chosen == ["all"]:
        return tuple(peer.name for peer in PEERS.values() if peer.installed)
    for name in chosen:
        if name not in PEERS:
            raise ConfigError(
                "SM-CONFIG-005", f"there is no peer {name!r}", hint=f"Known are {', '.join(PEERS)} and all."
            )
    return tuple(chosen) or DEFAULT_PEERS


def parse_threads(text: str) -> tuple[int, ...]:
    """`1,2` -> numbers of threads; by default one, and as many as there are CPUs."""
    available = len(choose_cpus(1 << 16))
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        return tuple(sorted({1, available}))
    if not all(part.isdecimal() and 1 <= int(part) <= available for part in parts):
        raise ConfigError("SM-CONFIG-001", f"threads {text!r} are not counts from 1 to {available}, such as 1,2")
    return tuple(int(part) for part in parts)


def run_suite(cases: Sequence[Case], plan: Plan, config: Config, progress: Progress | None = None) -> Outcome:
    progress = progress or Silent()
    limits = {threads: _limits(threads, config) for threads in plan.threads}
    works: dict[str, Work | None] = {}
    step = progress.task("bench", len(cases) * len(plan.threads))
    rows: list[Row] = []
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="smelt-bench-") as folder:
            bench = _CaseBench(case, plan, config, progress, Path(folder))
            works[case.name] = bench.work
            for threads in plan.threads:
                rows += bench.rows(threads)
                # A limit that was measured in a slow moment would make shares of more than all.
                limits[threads] = limits[threads].best(_limits(threads, config))
                step(case.name)
    shared = tuple(_with_share(row, works[row.case], limits[row.threads]) for row in rows)
    return Outcome(describe_machine(), tuple(limits.values()), shared)


def _with_share(row: Row, work: Work | None, limits: Limits) -> Row:
    if row.median_ms is None:
        return row
    share, bound = _share(work, limits, row.median_ms / 1e3)
    return replace(row, share=share, bound=bound)


def _limits(threads: int, config: Config) -> Limits:
    try:
        return measure_limits(threads, config)
    except SmeltError:
        return Limits(threads, 0.0, 0.0, 0.0, 0.0)


def describe_machine() -> str:
    import onnxruntime

    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    level = host_level()
    count = len(choose_cpus(1 << 16))
    return f"{count} x {model}, level {level.name if level else 'none'}, onnxruntime {onnxruntime.__version__}"


class _CaseBench:
    """One case: what peers need is made once, then timed for each number of threads."""

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
        self.work = _work_of(case)

    def _prepare(self, peer: Peer) -> None:
        """Check that the peer can run this case and write the model that it reads."""
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
        if peer == "smelt":
            started = time.monotonic()
            self.compiled = compile_to(
                self.case.model, self.folder / "artifact", self.plan.options, self.config, self.progress
            )
            self.compile_s = time.monotonic() - started
            return self.compiled.artifact.directory
        if peer == "ort-fused":
            return self._fused()
        return self.case.model

    def _fused(self) -> Path:
        if not self.case.fusion:
            raise PeerError("knows only transformers")
        path = self.folder / "fused" / "model.onnx"
        path.parent.mkdir()
        with Contestant(Job("ort-fused", self.case.model, self.feeds, 1), choose_cpus(1)) as worker:
            names = {"fusion": self.case.fusion, "module": self.case.module}
            worker.ask("fuse", model=str(self.case.model), path=str(path), **names)
        return path

    def rows(self, threads: int) -> list[Row]:
        with ExitStack() as stack:
            opened, rows = self._open_all(threads, stack)
            opened, series, failed = self._interleave(opened, threads)
            rows += failed
            # Without the first peer there is nothing to compare the others with.
            alone = not opened or opened[0][0] != self.plan.peers[0]
            baseline, reference = (None, []) if alone else (series[0], opened[0][1].outputs())
            for (label, contestant), found in zip(opened, series, strict=True):
                rows.append(self._row(label, contestant, found, baseline, reference, threads))
        order = {label: place for place, label in enumerate(_labels(self.plan.peers))}
        return sorted(rows, key=lambda row: order[row.peer])

    def _interleave(self, opened: Opened, threads: int) -> tuple[Opened, list[Series], list[Row]]:
        """Time all; when one fails on the way, start again without it."""
        failed: list[Row] = []
        while True:
            step = self.progress.task(f"{self.case.name}, {threads} threads", self.plan.pace.rounds)
            try:
                return opened, interleave([contestant for _, contestant in opened], self.plan.pace, step), failed
            except PeerError as error:
                culprits = [(label, one) for label, one in opened if one is error.contestant]
                if not culprits:
                    raise
                opened = [pair for pair in opened if pair not in culprits]
                failed += [self._problem(label, threads, _first_line(error)) for label, _ in culprits]

    def _problem(self, label: str, threads: int, problem: str) -> Row:
        return Row(self.case.name, self.case.about, label, threads, problem)

    def _open_all(self, threads: int, stack: ExitStack) -> tuple[Opened, list[Row]]:
        opened: Opened = []
        rows: list[Row] = []
        for label, name in zip(_labels(self.plan.peers), self.plan.peers, strict=True):
            problem = self.problems.get(name, "")
            if not problem:
                job = Job(name, self.models[name], self.feeds, threads, self.case.module)
                try:
                    opened.append((label, stack.enter_context(Contestant.open(job, choose_cpus(threads)))))
                except PeerError as error:
                    problem = _first_line(error)
            if problem:
                rows.append(self._problem(label, threads, problem))
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
            compile_s=self.compile_s if ours else None,
            coverage=_coverage(self.compiled) if ours else "",
        )


def _labels(peers: Sequence[str]) -> list[str]:
    """A peer that is given twice is told apart: `ort`, `ort#2`."""
    return [name if (n := peers[:place].count(name)) == 0 else f"{name}#{n + 1}" for place, name in enumerate(peers)]


def _work_of(case: Case) -> Work | None:
    try:
        return count_work(case.model, case.feeds)
    except Exception:  # without a count there is no share, and nothing else is lost
        return None


def _share(work: Work | None, limits: Limits, seconds: float) -> tuple[float | None, str]:
    if work is None or not limits.fma:
        return None, ""
    bandwidth = limits.cached_copy if work.bytes <= _IN_CACHE_BYTES else limits.read
    bound = "FMA" if work.flops / limits.fma >= work.bytes / bandwidth else "memory"
    return work.limit_s(limits.fma, bandwidth) / seconds, bound


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
        worst = max(worst, float(np.max(difference)))
    return worst


def _coverage(result: Result | None) -> str:
    if result is None:
        return ""
    taken = sum(len(region.nodes) for region in result.plan.regions)
    return f"{taken} of {taken + len(result.plan.left)} nodes in {_counted(len(result.plan.regions))}"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


def _counted(regions: int) -> str:
    return "1 region" if regions == 1 else f"{regions} regions"
