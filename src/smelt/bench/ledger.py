"""A file that a run can be taken up from.

Input: a path and what the run depends on. Output: rows that are already measured. Invariant: rows of other peers,
another pace, other sources of smelt or another machine are never taken for this run's, nor lost; the file is whole
after every case, so that a stopped run loses one case at most.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from smelt.base.sources import compiling_sources
from smelt.bench.outcome import Outcome, Row, as_facts, from_facts
from smelt.bench.roofline import Limits


class Ledger:
    """Rows by case and number of threads."""

    def __init__(self, path: Path, depends_on: Mapping[str, Any]) -> None:
        self.path, self.depends_on = path, dict(depends_on)
        self.set_aside: Path | None = None
        stored = self._stored(path) or self._stored(_aside(path, self.depends_on))
        self.rows: list[Row] = list(stored.rows) if stored else []
        self.limits: dict[int, Limits] = {one.threads: one for one in stored.limits} if stored else {}

    def _stored(self, path: Path) -> Outcome | None:
        try:
            facts = _facts(path)
            return from_facts(facts) if facts.get("depends_on") == self.depends_on else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _keep_others(self) -> None:
        """Rows that cannot be taken for this run's stay in a file of their own; a run like theirs goes on from it."""
        try:
            others = _facts(self.path).get("depends_on", {})
        except (OSError, ValueError, TypeError):
            return
        if others != self.depends_on:
            self.set_aside = self.path.replace(_aside(self.path, others))

    def found(self, case: str, about: str, threads: int) -> list[Row]:
        return [row for row in self.rows if (row.case, row.about, row.threads) == (case, about, threads)]

    def add(self, machine: str, rows: list[Row], limits: Mapping[int, Limits]) -> None:
        self.rows += rows
        self.limits |= limits
        self._write(Outcome(machine, tuple(self.limits.values()), tuple(self.rows)))

    def finish(self, outcome: Outcome) -> None:
        """Shares of limits are known at the end; cases that this run left out stay as they are."""
        done = {(row.case, row.about, row.threads) for row in outcome.rows}
        others = [row for row in self.rows if (row.case, row.about, row.threads) not in done]
        self.rows = [*others, *(row for row in outcome.rows if row.peer)]
        self._write(Outcome(outcome.machine, tuple(self.limits.values()), tuple(self.rows)))

    def _write(self, outcome: Outcome) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._keep_others()
        unfinished = self.path.with_suffix(f".{os.getpid()}")
        facts = {"depends_on": self.depends_on, **as_facts(outcome)}
        unfinished.write_text(json.dumps(facts, indent=1), encoding="utf-8")
        unfinished.replace(self.path)
        _aside(self.path, self.depends_on).unlink(missing_ok=True)


def _facts(path: Path) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))


def _aside(path: Path, depends_on: Mapping[str, Any]) -> Path:
    """Where rows with these dependencies lie while the file holds others."""
    digest = hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()[:8]
    return path.with_name(f"{path.stem}.{digest}{path.suffix}")


def dependencies(plan: Any, machine: str) -> dict[str, Any]:
    """What makes figures comparable: how they are taken, where, and the sources of smelt."""
    facts = {**asdict(plan), "machine": machine, "smelt": compiling_sources()[:16]}
    del facts["threads"], facts["patience_s"]
    return cast("dict[str, Any]", json.loads(json.dumps(facts, default=str)))
