"""Interleaved rounds.

Input: runners that give the seconds of n runs. Output: a `Series` per runner. Invariant: every round times every
runner, in an order that turns round each time (A B, B A, A B ...), so that slow drift hits all alike, and ratios are
taken within rounds only. A round counts by its mean: on a busy machine a short run mostly fits between two
interruptions and a long one never does, so medians of single runs would favour the faster side beyond its merit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from smelt.base.progress import Step
from smelt.bench.paired import Ratio, paired_ratio

_MOST_REPEATS: Final = 2000


class Runner(Protocol):
    def run(self, repeat: int, warm: int = 0) -> list[float]: ...


@dataclass(frozen=True)
class Pace:
    """How long to measure. A turn is one runner's part of a round."""

    rounds: int = 15
    turn_s: float = 0.25
    warm_s: float = 0.05
    fewest: int = 3


@dataclass(frozen=True)
class Series:
    """All times of one runner: `rounds` has the mean of each round, `calls` every call."""

    rounds: tuple[float, ...]
    calls: tuple[float, ...]

    @property
    def median(self) -> float:
        return float(np.median(self.rounds))

    def percentile(self, share: float) -> float:
        return float(np.percentile(self.calls, share))

    def ratio_to(self, baseline: Series) -> Ratio:
        """How many times faster than the baseline."""
        return paired_ratio(baseline.rounds, self.rounds)


def interleave(runners: Sequence[Runner], pace: Pace, step: Step | None = None) -> list[Series]:
    """Time all runners round by round."""
    plans = [_plan(runner, pace) for runner in runners]
    means: list[list[float]] = [[] for _ in runners]
    calls: list[list[float]] = [[] for _ in runners]
    for number in range(pace.rounds):
        order = range(len(runners)) if number % 2 == 0 else reversed(range(len(runners)))
        for place in order:
            repeat, warm = plans[place]
            seconds = runners[place].run(repeat, warm)
            means[place].append(float(np.mean(seconds)))
            calls[place].extend(seconds)
        if step is not None:
            step(f"round {number + 1} of {pace.rounds}")
    return [Series(tuple(m), tuple(c)) for m, c in zip(means, calls, strict=True)]


def _plan(runner: Runner, pace: Pace) -> tuple[int, int]:
    """Runs of a turn, and runs before it: enough to fill the times wanted."""
    first = runner.run(2)[-1]
    seconds = float(np.median(runner.run(_count(pace.warm_s, first, 2))))
    return _count(pace.turn_s, seconds, pace.fewest), _count(pace.warm_s, seconds, 1)


def _count(wanted_s: float, each_s: float, fewest: int) -> int:
    return max(fewest, min(_MOST_REPEATS, math.ceil(wanted_s / max(each_s, 1e-7))))
