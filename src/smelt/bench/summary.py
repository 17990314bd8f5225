"""Rows -> what a reader wants to know first.

Input: an `Outcome`. Output: a `Summary` per number of threads. Invariant: a mean is over the models that both sides
ran, and says how many those are; a model counts as ahead only when its whole 95% interval is above 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from smelt.bench.outcome import Outcome, Row
from smelt.bench.paired import Ratio


@dataclass(frozen=True)
class Summary:
    """smelt against `whom` over all models: geometric mean of the ratios, and on how many it is ahead or behind."""

    threads: int
    whom: str
    models: int
    mean: float
    ahead: int
    behind: tuple[str, ...]

    def __str__(self) -> str:
        models = "1 model" if self.models == 1 else f"{self.models} models"
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        behind = f", behind on {', '.join(self.behind)}" if self.behind else ""
        return (
            f"smelt against {self.whom}, {threads}: {self.mean:.2f}x (geometric mean of {models}), "
            f"ahead on {self.ahead}{behind}"
        )


def summarize(outcome: Outcome) -> list[Summary]:
    found: list[Summary] = []
    first = outcome.rows[0].peer if outcome.rows else ""
    for threads in sorted({row.threads for row in outcome.rows}):
        ours = [row for row in outcome.rows if row.threads == threads and row.is_ours]
        to_first = [(row, row.ratio) for row in ours if row.ratio is not None]
        to_best = [(row, row.vs_best) for row in ours if row.vs_best is not None]
        found += _summary(threads, first, to_first)
        found += _summary(threads, "the best of the others", to_best)
    return found


def _summary(threads: int, whom: str, pairs: Sequence[tuple[Row, Ratio]]) -> list[Summary]:
    if not pairs:
        return []
    mean = math.exp(sum(math.log(ratio.value) for _, ratio in pairs) / len(pairs))
    ahead = sum(ratio.low > 1 for _, ratio in pairs)
    behind = tuple(row.case for row, ratio in pairs if ratio.high < 1)
    return [Summary(threads, whom, len(pairs), mean, ahead, behind)]
