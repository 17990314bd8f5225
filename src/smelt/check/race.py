"""Two models against each other inside the examining process.

Input: a job of `speed_guard`: pairs of models, numbers of threads, when it began and how many seconds it has in all.
Output: an event for each pair, number of threads and size with the times of both, round by round. Invariant: the two
take turns, in alternating order, and each is run once before it is timed, so that whatever else the machine does meets
both alike; one thread is timed by its own processor time, which other programs do not count in. A clearly decided pair
ends early. Every number of threads has its share of the seconds, and a few rounds even where opening the sessions took
it, unless that would take as long again: as many as are evidence, where those are short. Other sizes than the usual are
timed where the share allows it. Where the rounds so far say that the right one is behind, it is looked at until that is
certain.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from smelt.check.events import Report, short
from smelt.check.feed_files import read_feeds
from smelt.check.intervals import median_interval
from smelt.check.race_sizes import Call, other_calls
from smelt.check.recipes import Recipe, fill
from smelt.runtime import Session, SessionSettings, session_for

Array = np.ndarray[Any, Any]

ASKED: Final = "asked.json"  # what is to be timed, where the process began before
FEWEST_ROUNDS: Final = 5  # with fewer, all of them on one side are no evidence
_LEAST_ROUNDS: Final = 2
_DOUBTFUL_ROUNDS: Final = 25  # that a race may take where its median says behind and its interval says nothing
_SPARE_S: Final = 0.25  # beyond its seconds, for as many rounds as are evidence where so few seconds make them
_PATIENCE_S: Final = 1.5  # beyond its seconds, in such a case
DOUBT: Final = 0.03  # a median so far below 1 is looked at until the interval decides
_MOST_ROUNDS: Final = 60
# Times as fast in each of so many rounds: no more are needed to know who is ahead. What another program does to the
# caches meets several rounds in a row, so that few of them say it by a wide margin only.
_CLEAR: Final = ((4, 1.2), (7, 1.1), (12, 1.05))
_USUAL_WEIGHT: Final = 3  # of the seconds for the usual sizes, where each of the others has 1
_FAR_AHEAD: Final = 2.0  # times as fast in every round at the usual sizes: no other size turns that into a loss
_SHORTEST_S: Final = 300e-6  # shorter runs are repeated: a clock and a scheduler have their own grain
_POLL_S: Final = 0.005
_STARTED: Final = time.perf_counter()
_LONG_S: Final = 20e-3  # a longer run needs no run before it


def race(job: Mapping[str, Any], folder: Path, report: Report) -> None:
    """Every pair at every number of threads. Names are files of the folder; `stock` is the model as it was given."""
    report(at="observe", attempt=0)
    sessions = _Sessions(job, folder, int(job["threads"][0]))
    feeds = _accepted_feeds(job, folder, sessions["stock"], report)
    if feeds is None:
        report(failed="no inputs that stock ONNX Runtime accepts were found for timing")
        return
    job = sessions.job = _asked(job, folder)
    _Race(job, [Call("", feeds), *other_calls(job.get("dims", {}), feeds)], report).run(sessions)


class _Race:
    """The pairs, in sessions of one number of threads after the other. `only` of the job says at which threads and
    sizes, where not at all. Each number of threads has its part of the patience with doubtful rounds."""

    def __init__(self, job: Mapping[str, Any], calls: Sequence[Call], report: Report) -> None:
        self.job, self.calls, self.report = job, calls, report
        self.only: list[list[Any]] | None = job.get("only")
        self.ends = float(job["began"]) + float(job["seconds"])
        self.patience = time.perf_counter() + max(0.0, self.ends - time.time())
        weights = [_weight(call) for threads in job["threads"] for call in self._calls(threads)]
        self.left_over = len(job["pairs"]) * sum(weights)

    def run(self, sessions: _Sessions) -> None:
        for threads in self.job["threads"]:
            if threads != sessions.threads:
                needed = time.time() + sessions.opening_s + sessions.running_s
                if needed > self.ends + max(_PATIENCE_S, float(self.job["seconds"])):
                    break
                sessions = _Sessions(self.job, sessions.folder, int(threads))
            self.patience += _PATIENCE_S / len(self.job["threads"])
            for left, right in self.job["pairs"]:
                try:
                    self._pair(left, right, sessions)
                except Exception as error:  # onnxruntime raises many kinds
                    self.report(failed=f"{left} or {right} does not run: {short(error)}")
                    return
                sessions.pop(left if left != "stock" else "", None)

    def _calls(self, threads: int) -> list[Call]:
        return [call for call in self.calls if self.only is None or [threads, call.sizes] in self.only]

    def _pair(self, left: str, right: str, sessions: _Sessions) -> None:
        """One after the other: the usual sizes first, others where the time that is left allows the fewest rounds. What
        is far ahead at the usual sizes is not looked at again."""
        usual_s = 0.0
        clock = time.thread_time if sessions.threads == 1 else time.perf_counter
        calls = self._calls(sessions.threads)
        left_after = self.left_over - sum(map(_weight, calls))
        if calls:
            self._open(left, right, sessions)
        for call in calls:
            share = max(0.0, self.ends - time.time()) * _weight(call) / max(1, self.left_over)
            self.left_over -= _weight(call)
            if call.sizes and not self._is_worth(call, usual_s, share, sessions["stock"]):
                continue
            self.report(at="race", left=left, right=right)
            spare = _SPARE_S / len(self.job["pairs"])
            rounds = _rounds(sessions[left], sessions[right], call.feeds, share, clock, self.patience, spare)
            self.report(raced=[left, right], threads=sessions.threads, sizes=call.sizes, rounds=rounds)
            if not call.sizes:
                usual_s = float(np.median([a + b for a, b in rounds])) / 1e6
                sessions.running_s = max(sessions.running_s, _least_s(rounds))
                if all(a > _FAR_AHEAD * b for a, b in rounds):
                    break
        self.left_over = left_after

    def _open(self, left: str, right: str, sessions: _Sessions) -> None:
        """Before the seconds are shared: what opening takes is taken from all numbers of threads alike, once."""
        self.report(at="race", left=left, right=right)
        opened_s = sessions.opening_s
        for name in (left, right):
            _ = sessions[name]
        if sessions.threads != self.job["threads"][0]:
            self.ends += sessions.opening_s - opened_s

    def _is_worth(self, call: Call, usual_s: float, seconds: float, stock: Session) -> bool:
        """Whether stock ONNX Runtime takes such sizes, and both models can run at them in the time given."""
        # A smaller call may take as long: launches do not depend on sizes.
        needed = 2 * FEWEST_ROUNDS * usual_s * max(1.0, call.elements / max(1, self.calls[0].elements))
        if self.only is None and needed > seconds:
            return False
        self.report(at="size", sizes=call.sizes)
        try:
            stock.run(None, call.feeds)
        except Exception:  # sizes that the model does not take
            return False
        return True


def _weight(call: Call) -> int:
    return 1 if call.sizes else _USUAL_WEIGHT


def _asked(job: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """The job with what is to be timed. It may come after stock's model was opened, while that is verified; what has
    been done before it came is taken off the seconds."""
    if "pairs" in job:
        return job
    spent = min(time.process_time(), time.perf_counter() - _STARTED)
    while not (folder / ASKED).exists():
        time.sleep(_POLL_S)
    asked = json.loads((folder / ASKED).read_bytes())
    late = max(0.0, time.time() - float(asked["began"]))
    return {**job, **asked, "seconds": float(asked["seconds"]) - max(0.0, spent - late)}


def _accepted_feeds(
    job: Mapping[str, Any], folder: Path, session: Session, report: Report
) -> dict[str, Array] | None:  # fmt: skip
    """The first inputs that the session runs on: those that were given, or generated ones. Stock ONNX Runtime dies of
    some (an integer divided by 0): the number of the attempt is told before it runs."""
    for attempt, feeds in _offered(job, folder):
        report(at="observe", attempt=attempt)
        try:
            session.run(None, feeds)
        except Exception:  # noqa: S112  the next attempt has other sizes
            continue
        return feeds
    return None


def _offered(job: Mapping[str, Any], folder: Path) -> Iterator[tuple[int, dict[str, Array]]]:
    given = read_feeds(folder / job["feeds"]) if job["feeds"] else {}
    if not job["recipes"]:
        yield 0, given
    for attempt, plain in enumerate(job["recipes"]):
        if plain is not None and attempt >= int(job["attempt"]):
            yield attempt, {**fill({name: Recipe.read(recipe) for name, recipe in plain.items()}), **given}


class _Sessions(dict[str, Session]):
    """By name, opened when first asked for."""

    def __init__(self, job: Mapping[str, Any], folder: Path, threads: int) -> None:
        super().__init__()
        self.job, self.folder, self.threads = job, folder, threads
        self.opening_s = self.running_s = 0.0

    def __missing__(self, name: str) -> Session:
        settings = SessionSettings(threads=self.threads, log_severity=4)
        path, library = (self.job["stock"], None) if name == "stock" else (self.folder / name, self.job["library"])
        started = time.perf_counter()
        self[name] = session_for(Path(path), None if library is None else Path(library), settings)
        self.opening_s += time.perf_counter() - started
        return self[name]


def _rounds(
    left: Session, right: Session, feeds: Mapping[str, Array], seconds: float,
    clock: Callable[[], float] = time.perf_counter, patience: float | None = None, spare_s: float = _SPARE_S,
) -> list[list[float]]:  # fmt: skip
    """Microseconds of one run of each, by the clock given. Doubts are looked into until `patience`."""
    ends = time.perf_counter() + seconds
    run_s = partial(_run_s, feeds=feeds, clock=clock)
    once = max(run_s(left), run_s(right))
    if once < _LONG_S:  # the first run is no measure of a short one
        once = min(once, max(run_s(left), run_s(right)))
    repeats = max(1, round(_SHORTEST_S / max(once, 1e-7)))
    warm = 0 if once > _LONG_S else 1
    out: list[list[float]] = []
    last: Session | None = None
    patience = ends + _PATIENCE_S if patience is None else patience
    while len(out) < _MOST_ROUNDS and not _decided(out):
        late = time.perf_counter() >= ends
        if late and not _open(out, spare_s) and not (_doubtful(out) and time.perf_counter() < patience):
            break
        pair = [0.0, 0.0]
        for place in (0, 1) if len(out) % 2 else (1, 0):
            session = (left, right)[place]
            if session is not last:  # the one that ended a round begins the next: it is warm
                run_s(session, repeats=warm)
            last = session
            pair[place] = run_s(session, repeats=repeats) * 1e6 / repeats
        out.append(pair)
    return out


def _open(rounds: list[list[float]], spare_s: float) -> bool:
    """Whether the rounds so far ask for more, although the time is over: the right one may be behind, or rounds enough
    for evidence take no longer than `spare_s`."""
    if len(rounds) < _LEAST_ROUNDS:
        return True
    behind = float(np.median([left / right for left, right in rounds])) < 1
    is_cheap = _least_s(rounds) / _LEAST_ROUNDS * FEWEST_ROUNDS <= spare_s
    return (behind or is_cheap) and len(rounds) < FEWEST_ROUNDS


def _doubtful(rounds: list[list[float]]) -> bool:
    """Whether the median says behind by a margin, and the interval of the few rounds so far still holds 1."""
    ratio, _, high = median_interval([left / right for left, right in rounds])
    return ratio < 1 - DOUBT and high >= 1 and len(rounds) < _DOUBTFUL_ROUNDS


def _least_s(rounds: list[list[float]]) -> float:
    """What the fewest rounds of such a pair take, the runs before them included."""
    return 2 * _LEAST_ROUNDS * float(np.median([left + right for left, right in rounds])) / 1e6


def _decided(rounds: list[list[float]]) -> bool:
    """The right one is ahead, whatever comes. That it is behind is never taken for granted."""
    least = min((left / right for left, right in rounds), default=0.0)
    return any(len(rounds) >= count and least > margin for count, margin in _CLEAR)


def _run_s(session: Session, *, feeds: Mapping[str, Array], clock: Callable[[], float], repeats: int = 1) -> float:
    started = clock()
    for _ in range(repeats):
        session.run(None, feeds)
    return clock() - started
