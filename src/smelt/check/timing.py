"""Timing inside the examining process.

Input: a job of `tune`: pairs of models to compare, or libraries with clocks. Output: events: the paired times of each
pair, the time of each custom op, the ticks of each launch. Invariant: what is compared takes turns run by run, in
alternating order, so that whatever else the machine does meets all alike.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from smelt.check.events import Report, short
from smelt.check.observe import offers
from smelt.runtime import CPU_PROVIDERS, LaunchClocks, Session, SessionSettings, node_times, session_for

Array = np.ndarray[Any, Any]

_WARMUP: Final = 3
_PAIR_BUDGET_S: Final = 1.5
_MAX_ROUNDS: Final = 60
_MIN_ROUNDS: Final = 9
_SHORTEST_S: Final = 300e-6  # shorter runs are repeated: a clock and a scheduler have their own grain
_PROFILE_RUNS: Final = 5


def time_variants(job: Mapping[str, Any], folder: Path, report: Report) -> None:
    others = {name: Path(library) for name, library in job.get("libraries", {}).items()}
    sessions = _Sessions(folder, Path(job["library"]), int(job["threads"]), others, job.get("providers"))
    report(at="observe", attempt=int(job["attempt"]))
    feeds = accepted_feeds(job, folder, sessions["stock.onnx"])
    if feeds is None:
        report(failed="no inputs that stock ONNX Runtime accepts were found for timing")
        return
    if job["profile"]:
        report(at="profile")
        report(nodes=_node_times(folder, sessions, feeds))
    if job.get("clocked"):
        _report_clocks(job, sessions, feeds, report)
    for left, right in job["pairs"]:
        report(at="pair", left=left, right=right)
        try:
            rounds = _paired(sessions[left], sessions[right], feeds)
        except Exception as error:  # onnxruntime raises many kinds
            report(failed=f"{left} or {right} does not run: {short(error)}")
            return
        report(pair=[left, right], rounds=rounds)
        sessions.drop(left if left not in job["keep"] else "", right if right not in job["keep"] else "")


class _Sessions(dict[str, Session]):
    """Sessions by file name, opened when first asked for. `file@label` is the same file with another library."""

    def __init__(
        self, folder: Path, library: Path, threads: int, others: Mapping[str, Path],
        providers: list[str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.others = others
        self.folder = folder
        self.library = library
        self.settings = SessionSettings(threads=threads, log_severity=4, providers=tuple(providers or CPU_PROVIDERS))

    def __missing__(self, name: str) -> Session:
        library = None if name == "stock.onnx" else self.others.get(name, self.library)
        self[name] = session_for(self.folder / name.partition("@")[0], library, self.settings)
        return self[name]

    def drop(self, *names: str) -> None:
        for name in names:
            self.pop(name, None)


def accepted_feeds(job: Mapping[str, Any], folder: Path, session: Session) -> dict[str, Array] | None:
    """The first inputs that the session runs on: those that were given, or generated ones."""
    for offer in offers(job, folder):
        try:
            session.run(None, offer.feeds)
        except Exception:  # noqa: S112  the next attempt has other sizes
            continue
        return offer.feeds
    return None


def _node_times(folder: Path, sessions: _Sessions, feeds: Mapping[str, Array]) -> dict[str, float]:
    times = node_times(
        folder / "fast.onnx", feeds, sessions.library, sessions.settings, runs=_PROFILE_RUNS, warmup=_WARMUP
    )
    return {node.name: node.median_us for node in times}


def _report_clocks(job: Mapping[str, Any], sessions: _Sessions, feeds: Mapping[str, Array], report: Report) -> None:
    """The ticks of every launch in each of the libraries, round by round."""
    labels: list[str] = job["clocked"]
    paths = [sessions.others.get(label, sessions.library) for label in labels]
    clocks = [LaunchClocks(path, job["levels"], job["launches"]) for path in paths]
    runs = [sessions[label] for label in labels]
    once = max(_run_us(session, feeds, _WARMUP) for session in runs) / 1e6
    rounds = int(np.clip(_PAIR_BUDGET_S / max(2 * once, 1e-7), _MIN_ROUNDS, _MAX_ROUNDS))
    for number in range(rounds):
        order = range(len(labels)) if number % 2 else reversed(range(len(labels)))
        ticks: dict[str, Any] = {}
        for place in order:
            clocks[place].reset()
            runs[place].run(None, feeds)
            ticks[labels[place]] = clocks[place].read()
        report(ticks=ticks)


def _paired(left: Session, right: Session, feeds: Mapping[str, Array]) -> list[list[float]]:
    """Microseconds of one run of each, round by round."""
    once = max(_run_us(left, feeds, 1), _run_us(right, feeds, 1))
    for session in (left, right):
        _run_us(session, feeds, _WARMUP)
    once = min(once, _run_us(left, feeds, 1)) / 1e6
    repeats = max(1, round(_SHORTEST_S / max(once, 1e-7)))
    rounds = int(np.clip(_PAIR_BUDGET_S / max(2 * once * repeats, 1e-7), _MIN_ROUNDS, _MAX_ROUNDS))
    out: list[list[float]] = []
    give_up = time.perf_counter() + 4 * _PAIR_BUDGET_S  # on a machine that others use too
    for number in range(rounds):
        if len(out) >= _MIN_ROUNDS and time.perf_counter() > give_up:
            break
        if number % 2:
            second = _run_us(right, feeds, repeats)
            out.append([_run_us(left, feeds, repeats), second])
        else:
            out.append([_run_us(left, feeds, repeats), _run_us(right, feeds, repeats)])
    return out


def _run_us(session: Session, feeds: Mapping[str, Array], repeats: int) -> float:
    started = time.perf_counter()
    for _ in range(repeats):
        session.run(None, feeds)
    return (time.perf_counter() - started) * 1e6 / repeats
