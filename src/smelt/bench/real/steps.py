"""The steps that a real model goes through: compile, verify, right, time.

Input: a `RealModel` and the artifact's place. Output: plain facts for the results. Invariant: each step runs in
processes of its own, as a user would run it, so that whatever a model does is a result and not the end of the run; the
compiler starts with an empty cache unless the run is told to share one.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

from smelt.base import Config
from smelt.base.config import child_environment
from smelt.base.progress import Progress
from smelt.bench.case_bench import CaseBench, Plan, Prepared
from smelt.bench.cases import Case
from smelt.bench.contestant import import_path
from smelt.bench.outcome import Row
from smelt.bench.paired import Ratio
from smelt.bench.peers import Array, write_feeds
from smelt.bench.real.judge import shapes_text
from smelt.bench.real.results import NOT_SLOWER, Facts

_MORE_ROUNDS: Final = 4
_PATIENCE_S: Final = 1200.0


@dataclass(frozen=True)
class RealModel:
    """A file with what it is fed, the usual size first. `problem` says why there is no file."""

    name: str
    source: str
    path: Path
    feeds: tuple[Mapping[str, Array], ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Compiling:
    """`cache` is shared between models, for a run that looks at results and not at compile times; without `timing`
    nothing falls back to stock for its speed."""

    cache: Path | None = None
    timing: bool = True


@dataclass(frozen=True)
class Ended:
    code: int
    output: str
    errors: str
    wall_s: float
    cpu_s: float

    def answer(self) -> Facts:
        """The JSON object that a command printed; empty where it printed none."""
        try:
            found = json.loads(self.output)
        except ValueError:
            return {}
        return cast("Facts", found) if isinstance(found, dict) else {}

    def problem(self) -> str:
        if self.code == 0:
            return ""
        error = self.answer().get("error")  # of a failure; of a verification it is a number
        told = cast("Facts", error).get("message") if isinstance(error, dict) else None
        lines = self.errors.strip().splitlines()
        return f"exit code {self.code}: {told or (lines[-1] if lines else 'it said nothing')}"[:400]


def compile_file(model: RealModel, artifact: Path, how: Compiling) -> Facts:
    """`smelt compile` with default options and an empty cache, unless `how` says otherwise."""
    artifact.parent.mkdir(parents=True, exist_ok=True)
    command = ["compile", str(model.path), "--output", str(artifact), "--json"]
    command += [] if how.timing else ["--no-timing"]
    with tempfile.TemporaryDirectory(prefix="smelt-real-") as folder:
        ended = _run(command, {"SMELT_CACHE_DIR": str(how.cache or folder)})
    report = ended.answer()
    summary = report.get("summary", {})
    return {
        "problem": ended.problem(),
        "wall_s": ended.wall_s,
        "cpu_s": ended.cpu_s,
        "stages": dict(report.get("stages", [])),
        "in_kernels": summary.get("in_kernels"),
        "nodes": summary.get("nodes"),
        "regions": summary.get("regions"),
        "notes": report.get("notes", []),
        "reasons": [_reason(one) for one in report.get("reasons", [])[:8]],
        "faults": [f"{one.get('stage', '')}: {one.get('error', '')}"[:300] for one in report.get("faults", [])],
        "timed": report.get("timed", []),
    }


def _reason(row: Mapping[str, Any]) -> str:
    return f"{row.get('reason', '')} ({row.get('count', '')})"[:300]


def verify_artifact(model: RealModel, artifact: Path) -> Facts:
    """`smelt verify` with default options."""
    ended = _run(["verify", str(artifact), "--against", str(model.path), "--json"], {})
    answer = ended.answer()
    wrong = [str(run.get("verdict")) for run in answer.get("runs", []) if not run.get("right")]
    right = bool(answer.get("right")) and ended.code == 0
    return {"right": right, "problem": "" if right else (wrong or [ended.problem() or "no answer"])[0][:400]}


def judge_sizes(model: RealModel, artifact: Path, threads: Sequence[int]) -> Facts:
    """Every size against stock without optimizers. A size that ends the process is wrong, as are those behind it."""
    with tempfile.TemporaryDirectory(prefix="smelt-real-") as folder:
        paths = [Path(folder) / f"{place}.npz" for place in range(len(model.feeds))]
        for path, feeds in zip(paths, model.feeds, strict=True):
            write_feeds(path, feeds)
        job = {
            "model": str(model.path),
            "artifact": str(artifact),
            "feeds": [str(p) for p in paths],
            "threads": threads,
        }
        ended = _python(["-m", "smelt.bench.real.judge"], {}, json.dumps(job))
    sizes = [json.loads(line) for line in ended.output.splitlines()]
    died = ended.problem() or "no answer"
    unknown = [{"shapes": shapes_text(dict(feeds)), "problem": died} for feeds in model.feeds[len(sizes) :]]
    return {"sizes": [*sizes, *unknown]}


def time_sizes(
    model: RealModel, artifact: Path, plan: Plan, config: Config, progress: Progress, most: int
) -> Facts:  # fmt: skip
    """Interleaved rounds against the peers, at the first sizes and every number of threads."""
    rows: list[Facts] = []
    for feeds in model.feeds[:most]:
        case = Case(model.name, shapes_text(dict(feeds)), model.path, feeds, artifact=artifact)
        with tempfile.TemporaryDirectory(prefix="smelt-real-") as folder:
            bench = CaseBench(case, Prepared(case, plan, config, progress, Path(folder)))
            rows += [_timed(case.about, threads, _decided_rows(bench, threads)) for threads in plan.threads]
    return {"rows": rows}


def _decided_rows(bench: CaseBench, threads: int) -> list[Row]:
    """Where the interval does not tell whether ours is slower, more rounds do: they alone count then."""
    rows = bench.rows(threads)
    ratio = next((row.ratio for row in rows if row.is_ours), None)
    if ratio is None or not ratio.low < NOT_SLOWER <= ratio.high:
        return rows
    usual = bench.plan
    bench.plan = replace(usual, pace=replace(usual.pace, rounds=_MORE_ROUNDS * usual.pace.rounds))
    try:
        return bench.rows(threads)
    finally:
        bench.plan = usual


def _timed(shapes: str, threads: int, rows: Sequence[Row]) -> Facts:
    ours = next((row for row in rows if row.is_ours), None)
    found: Facts = {
        "shapes": shapes,
        "threads": threads,
        "ms": {row.peer: row.median_ms for row in rows if row.median_ms is not None},
        "problems": {row.peer: row.problem for row in rows if row.problem},
    }
    if ours is not None:
        found["ratio"] = _interval(ours.ratio)
        found["vs_best"] = _interval(ours.vs_best) or found["ratio"]
        found["best"] = ours.best or "ort"
    return found


def _interval(ratio: Ratio | None) -> list[float] | None:
    return None if ratio is None else [ratio.value, ratio.low, min(ratio.high, 1e9)]


def _run(arguments: Sequence[str], variables: Mapping[str, str]) -> Ended:
    return _python(["-m", "smelt", *arguments], variables)


def _python(arguments: Sequence[str], variables: Mapping[str, str], told: str = "") -> Ended:
    """A Python process that finds this smelt."""
    command = [sys.executable, "-P", "-W", "ignore", *arguments]
    environment = child_environment({**import_path(), **variables})
    started, used = time.perf_counter(), _cpu_of_children()
    try:
        done = subprocess.run(
            command, input=told, env=environment, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
        code, output, errors = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        code, output, errors = -1, "", f"no end after {_PATIENCE_S:g} s"
    return Ended(code, output, errors, time.perf_counter() - started, _cpu_of_children() - used)


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
