"""Cases and peers -> rows of the table.

Input: cases, peers, numbers of threads, and a file to take up from. Output: an `Outcome`. Invariant: a peer or a model
that fails is a row that says so, never the end of the run; ratios and errors are against the first peer.
"""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from smelt.base import Config, ConfigError, SmeltError
from smelt.base.progress import Progress, Silent
from smelt.base.target import host_level
from smelt.bench.case_bench import DEFAULT_PEERS, CaseBench, Plan, Prepared
from smelt.bench.cases import Case
from smelt.bench.contestant import choose_cpus
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
) -> Outcome:
    return _Run(plan, config, progress or Silent(), ledger).outcome(cases)


class _Run:
    """Rows and limits as they are found."""

    def __init__(self, plan: Plan, config: Config, progress: Progress, ledger: Ledger | None) -> None:
        self.plan, self.config, self.progress, self.ledger = plan, config, progress, ledger
        self.machine = describe_machine()
        known: dict[int, Limits] = ledger.limits if ledger else {}
        found = {threads: _limits(threads, config) for threads in plan.threads}
        self.limits = {n: one.best(known.get(n, one)) for n, one in found.items()}

    def outcome(self, cases: Sequence[Case]) -> Outcome:
        step = self.progress.task("bench", len(cases) * len(self.plan.threads))
        rows: list[Row] = []
        for _, group in groupby(cases, key=lambda case: (case.model, case.problem)):
            for row_group in self._model(list(group)):
                rows += row_group
                step(row_group[0].case if row_group else "")
        shared = tuple(row.with_share(self.limits[row.threads]) for row in rows)
        found = Outcome(self.machine, tuple(self.limits.values()), shared)
        if self.ledger:
            self.ledger.finish(found)
        return found

    def _model(self, cases: Sequence[Case]) -> Iterable[list[Row]]:
        """All sizes and numbers of threads of one model; the model is prepared only if something is missing."""
        with tempfile.TemporaryDirectory(prefix="smelt-bench-") as folder:
            prepared: Prepared | None = None
            for case in cases:
                bench: CaseBench | None = None
                for threads in self.plan.threads:
                    known = self.ledger.found(case.name, case.about, threads) if self.ledger else []
                    if known or case.problem:
                        yield known or [Row(case.name, case.about, "", threads, case.problem)]
                        continue
                    prepared = prepared or Prepared(case, self.plan, self.config, self.progress, Path(folder))
                    bench = bench or CaseBench(case, prepared)
                    yield self._measured(bench, threads)

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
    import onnxruntime

    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    level = host_level()
    count = len(choose_cpus(1 << 16))
    return f"{count} x {model}, level {level.name if level else 'none'}, onnxruntime {onnxruntime.__version__}"
