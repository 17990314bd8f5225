"""Cases and peers -> rows of the table.

Input: cases, peers, numbers of threads, a file to take up from, and the time that may be spent. Output: an `Outcome`.
Invariant: a peer or a model that fails is a row that says so, never the end of the run; ratios and errors are against
the first peer; a case is timed whole or, when time is over, not at all.
"""

from __future__ import annotations

import platform
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path

from smelt.base import Config, ConfigError, SmeltError
from smelt.base.progress import Progress, Silent
from smelt.base.target import host_level
from smelt.bench.case_bench import DEFAULT_PEERS, CaseBench, Plan, Prepared
from smelt.bench.cases import Case
from smelt.bench.contestant import choose_cpus
from smelt.bench.forecast import Forecast, spell
from smelt.bench.ledger import Ledger
from smelt.bench.outcome import Outcome, Row
from smelt.bench.peers import PEERS
from smelt.bench.roofline import Limits, measure_limits


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


def run_suite(
    cases: Sequence[Case],
    plan: Plan,
    config: Config,
    progress: Progress | None = None,
    ledger: Ledger | None = None,
    say: Callable[[str], None] | None = None,
    limit_s: float | None = None,
) -> Outcome:
    """`say` is told how long it will take; nothing is begun that is not thought to end within `limit_s`."""
    run = _Run(plan, config, progress or Silent(), ledger)
    run.say, run.limit_s = say or _nobody, limit_s
    return run.outcome(cases)


def _nobody(text: str) -> None:
    del text


class _Run:
    """Rows and limits as they are found."""

    say: Callable[[str], None] = staticmethod(_nobody)
    limit_s: float | None = None

    def __init__(self, plan: Plan, config: Config, progress: Progress, ledger: Ledger | None) -> None:
        self.plan, self.config, self.progress, self.ledger = plan, config, progress, ledger
        self.machine = describe_machine()
        self.forecast, self.started = Forecast(plan), time.monotonic()
        known: dict[int, Limits] = ledger.limits if ledger else {}
        found = {threads: _limits(threads, config) for threads in plan.threads}
        self.limits = {n: one.best(known.get(n, one)) for n, one in found.items()}
        self.ahead: list[tuple[Case, int]] = []

    def outcome(self, cases: Sequence[Case]) -> Outcome:
        step = self.progress.task("bench", len(cases) * len(self.plan.threads))
        rows: list[Row] = []
        self.ahead = [
            (case, threads) for case in cases for threads in self.plan.threads if not self._known(case, threads)
        ]
        self.say(f"{len(self.ahead)} measurements ahead, about {spell(self._ahead_s())}")
        for _, group in groupby(cases, key=lambda case: (case.model, case.problem)):
            for row_group in self._model(list(group)):
                rows += row_group
                step(row_group[0].case if row_group else "")
        shared = tuple(row.with_share(self.limits[row.threads]) for row in rows)
        found = Outcome(self.machine, tuple(self.limits.values()), shared)
        if self.ledger:
            self.ledger.finish(found)
        return found

    def _known(self, case: Case, threads: int) -> list[Row]:
        """Rows that need no measurement."""
        known = self.ledger.found(case.name, case.about, threads) if self.ledger else []
        return known or ([Row(case.name, case.about, "", threads, case.problem)] if case.problem else [])

    def _model(self, cases: Sequence[Case]) -> Iterable[list[Row]]:
        """All sizes and numbers of threads of one model; the model is prepared only if something is missing."""
        with tempfile.TemporaryDirectory(prefix="smelt-bench-") as folder:
            prepared: Prepared | None = None
            for case in cases:
                bench: CaseBench | None = None
                for threads in self.plan.threads:
                    known = self._known(case, threads)
                    if known or self._too_long(case, threads, first=prepared is None):
                        yield known
                        continue
                    first, begun = prepared is None, time.monotonic()
                    prepared = prepared or Prepared(case, self.plan, self.config, self.progress, Path(folder))
                    bench = bench or CaseBench(case, prepared)
                    rows = self._measured(bench, threads)
                    self._report(case, threads, time.monotonic() - begun, first=first)
                    yield rows

    def _too_long(self, case: Case, threads: int, *, first: bool) -> bool:
        """Left for the next call, since this one's time would not do."""
        if self.limit_s is None:
            return False
        left_s = self.limit_s - (time.monotonic() - self.started)
        if self.forecast.seconds(case, threads, first=first) <= left_s:
            return False
        self.say(f"{case.name}, {threads} threads: left for the next call, no time")
        return True

    def _report(self, case: Case, threads: int, seconds: float, *, first: bool) -> None:
        self.forecast.learn(case, threads, seconds, first=first)
        self.ahead = [one for one in self.ahead if (one[0].name, one[1]) != (case.name, threads)]
        left = f"about {spell(self._ahead_s())} left" if self.ahead else "done"
        self.say(f"{case.name}, {threads} threads: {spell(seconds)}, {left}")

    def _ahead_s(self) -> float:
        seen: set[Path] = set()
        total = 0.0
        for case, threads in self.ahead:
            total += self.forecast.seconds(case, threads, first=case.model not in seen)
            seen.add(case.model)
        return total

    def _measured(self, bench: CaseBench, threads: int) -> list[Row]:
        rows = bench.rows(threads)
        # A limit that was measured in a slow moment would make shares of more than all.
        self.limits[threads] = self.limits[threads].best(_limits(threads, self.config))
        if self.ledger:
            self.ledger.add(self.machine, rows, self.limits)
        return rows


def _limits(threads: int, config: Config) -> Limits:
    try:
        return measure_limits(threads, config)
    except SmeltError:
        return Limits(threads, 0.0, 0.0, 0.0, 0.0)


def describe_machine() -> str:
    """CPUs, their level, and the versions of what is compared."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    level = host_level()
    count = len(choose_cpus(1 << 16))
    return ", ".join([f"{count} x {model}", f"level {level.name if level else 'none'}", *_versions()])


def _versions() -> Iterable[str]:
    for package in ("onnxruntime", "openvino", "torch"):
        with suppress(PackageNotFoundError):
            yield f"{package} {version(package).partition('-')[0]}"
