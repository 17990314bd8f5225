"""What a run came to.

Input: what the pool told while it ran. Output: `Report` as text, JSON and one HTML page. Invariant: rows and failures
are those of the records on disk; rates are of this run alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from smelt.base.errors import BatchError
from smelt.base.progress import Progress
from smelt.frontends.batch.records import Stages
from smelt.report import counted

_SAMPLE_S: Final = 0.5
_SAMPLES: Final = 400
_NOTED_S: Final = 5.0  # a note stands in the place of the rate, long enough to be read
_STAGES: Final = ("read", "prepare", "infer", "write")
_WORDS: Final = {"read": "reading", "prepare": "preprocessing", "infer": "inference", "write": "writing"}


@dataclass
class Report:
    """The final account. `seconds_to_ready`: until the first worker had loaded its model; 0 where that is not known.
    `rates`: [seconds since the start, rows per second]."""

    output: str
    rows: int
    failed_rows: int
    parts: int
    parts_done: int
    parts_skipped: int
    parts_failed: dict[int, str]
    interrupted: bool
    seconds: float
    rows_done: int
    rows_per_second: float
    seconds_to_ready: float
    batch: int
    workers: int
    threads: int
    stages: dict[str, float]
    limited_by: str
    errors: str
    rates: list[list[float]] = field(default_factory=list[list[float]])
    measured: list[list[float]] = field(default_factory=list[list[float]])
    notes: list[str] = field(default_factory=list[str])

    @property
    def complete(self) -> bool:
        return not self.interrupted and not self.parts_failed and self.parts_done + self.parts_skipped == self.parts

    @property
    def nothing_left(self) -> bool:
        """Whether an earlier run had finished every part."""
        return self.complete and self.parts > 0 and not self.parts_done

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "complete": self.complete}

    def _failed_rows(self) -> list[str]:
        return [f"failed rows: {self.failed_rows:,}, in {self.errors}"] if self.failed_rows else []

    def lines(self) -> list[str]:
        """As text."""
        state = "done" if self.complete else "interrupted" if self.interrupted else "incomplete"
        if not self.rows:
            return ["done: no rows"]
        if self.nothing_left:
            return [f"done before: {self.rows:,} rows in {self.parts:,} parts", *self._failed_rows()]
        skipped = f", {self.parts_skipped:,} finished before" if self.parts_skipped else ""
        lines = [
            f"{state}: {self.rows_done:,} of {self.rows:,} rows in {self.seconds:.1f} s, "
            f"{self.rows_per_second:,.1f} rows/s; {self.parts_done:,} of {self.parts:,} parts{skipped}",
            f"batch {self.batch}, {counted(self.workers, 'worker')} of {counted(self.threads, 'thread')}; "
            f"limited by {self.limited_by}",
            "busy: "
            + ", ".join(f"{_WORDS[name]} {self.stages[name]:.1f} s" for name in _STAGES)
            + f"; inference waited {self.stages['wait']:.1f} s",
        ]
        lines += self._failed_rows()
        lines += [f"part {part} failed: {reason}" for part, reason in list(self.parts_failed.items())[:20]]
        lines += [f"note: {note}" for note in self.notes[:20]]
        return lines


class Watcher:
    """Told by the pool; draws progress, keeps samples, and ends the run when more rows failed than `limit`."""

    def __init__(self, rows: int, done: int, failed: int, progress: Progress, limit: int | None = None) -> None:
        self.rows, self.failed_rows = rows, failed
        self.stage_sums = Stages()
        self.parts_done: dict[int, int] = {}
        self.parts_failed: dict[int, str] = {}
        self.notes: list[str] = []
        self.samples: list[list[float]] = [[0.0, 0.0]]
        self.started = time.monotonic()
        self._step = progress.task("rows", rows)
        self._step(advance=done)
        self._left = rows - done
        self._sampled = (0.0, 0)
        self.ready_at = 0.0
        self._noted_at = -_NOTED_S
        self._limit, self._recorded = limit, failed
        self._check_limit()

    def stages(self, taken: Mapping[str, Any]) -> None:
        self.stage_sums.add(taken)
        now = time.monotonic() - self.started
        rows = int(taken.get("rows", 0))
        seen = self.stage_sums.rows
        if now - self._sampled[0] >= _SAMPLE_S:
            rate = (seen - self._sampled[1]) / (now - self._sampled[0])
            self.samples.append([round(now, 2), round(rate, 2)])
            self._sampled = (now, seen)
        if rows:
            noted = time.monotonic() - self._noted_at < _NOTED_S
            self._step(self.notes[-1] if noted else self._text(seen / max(now, 1e-9), self._left - seen), rows)

    def _text(self, rate: float, left: int) -> str:
        eta = max(0, left) / rate if rate else 0.0
        failed = self.failed_rows + self.stage_sums.failed
        return f"{rate:,.0f} rows/s, {_clock(eta)} left" + (f", {failed:,} failed" if failed else "")

    def ready(self) -> None:
        """A worker has its model loaded. The first one counts."""
        self.ready_at = self.ready_at or time.monotonic() - self.started

    def done(self, part: int, rows: int, failed: int) -> None:
        self.parts_done[part] = rows
        self._recorded += failed
        self._check_limit()

    def _check_limit(self) -> None:
        if self._limit is not None and self._recorded > self._limit:
            raise BatchError(
                "SM-BATCH-009", f"{self._recorded} rows failed, more than the {self._limit} that are allowed"
            )

    def failed(self, part: int, reason: str) -> None:
        self.parts_failed[part] = reason

    def note(self, text: str) -> None:
        self.notes.append(text)
        self._noted_at = time.monotonic()
        self._step(text, 0)

    def thinned(self) -> list[list[float]]:
        """Few enough samples to draw."""
        step = max(1, len(self.samples) // _SAMPLES)
        return self.samples[::step]


def limit_of(stages: Stages, seconds: float, workers: int) -> str:
    """The stage that was busy most of the time that the workers had."""
    shares = {name: getattr(stages, name) / max(1e-9, seconds * workers) for name in _STAGES}
    most = max(shares, key=lambda name: shares[name])
    if shares[most] < 0.5:
        return f"starting and waiting ({_WORDS[most]} was busy {shares[most]:.0%} of the time)"
    return f"{_WORDS[most]} ({shares[most]:.0%} of the time)"


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def write_report(report: Report, put: Any, own: Any) -> None:
    """report.json and report.html. Those of the run that did the work stay where nothing was left to do."""
    if report.nothing_left and (own / "report.json").exists():
        return
    from smelt.frontends.batch.report_page import page

    put(own / "report.json", (json.dumps(report.to_json(), indent=1) + "\n").encode())
    put(own / "report.html", page(report).encode())
