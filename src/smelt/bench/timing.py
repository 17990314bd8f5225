"""Interleaved rounds.

Input: runners that give the seconds of n runs. Output: a `Series` per runner. Invariant: every round times every
runner, in an order that turns round each time (A B, B A, A B ...), so that slow drift hits all alike, and ratios are
taken within rounds only. A round counts by its mean: on a busy machine a short run mostly fits between two
interruptions and a long one never does, so medians of single runs would favour the faster side beyond its merit.
A runner that is far behind after the first rounds is not timed any further: its series is shorter, and ratios with it
are taken over the rounds that both ran.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from smelt.base.progress import Step
from smelt.bench.paired import Ratio, paired_ratio

_MOST_REPEATS: Final = 2000
_LONG_RUN: Final = 4.0  # a run of so many times the time to warm up needs no runs before it
_BEHIND: Final = 1.25  # times the fastest: too far to be the fastest in the end


class Runner(Protocol):
    def run(self, repeat: int, warm: int = 0) -> list[float]: ...


@dataclass(frozen=True)
class Pace:
    """How long to measure. A turn is one runner's part of a round; `trial` rounds are run by all."""

    rounds: int = 15
    slice_s: float = 0.25
    warm_s: float = 0.05
    fewest: int = 1
    trial: int = 4


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
        """How many times faster than the baseline, over the rounds that both ran."""
        both = min(len(self.rounds), len(baseline.rounds))
        return paired_ratio(baseline.rounds[:both], self.rounds[:both])


def interleave(
    runners: Sequence[Runner], pace: Pace, step: Step | None = None, ours: Collection[int] | None = None
) -> list[Series]:
    """Time all runners round by round. With `ours`, others that are far behind the best other stop after the trial."""
    plans = [_plan(runner, pace) for runner in runners]
    means: list[list[float]] = [[] for _ in runners]
    calls: list[list[float]] = [[] for _ in runners]
    places = list(range(len(runners)))
    for number in range(pace.rounds):
        if ours is not None and number == pace.trial:
            places = _still_racing(means, ours)
        for place in places if number % 2 == 0 else reversed(places):
            repeat, warm = plans[place]
            seconds = runners[place].run(repeat, warm)
            means[place].append(float(np.mean(seconds)))
            calls[place].extend(seconds)
        if step is not None:
            step(f"round {number + 1} of {pace.rounds}")
    return [Series(tuple(m), tuple(c)) for m, c in zip(means, calls, strict=True)]


def _still_racing(means: Sequence[Sequence[float]], ours: Collection[int]) -> list[int]:
    """Ours, the first, which ratios are taken to, and those that may yet turn out the fastest of the others."""
    typical = [float(np.median(seconds)) for seconds in means]
    best = min((one for place, one in enumerate(typical) if place not in ours), default=math.inf)
    return [place for place, one in enumerate(typical) if place == 0 or place in ours or one <= _BEHIND * best]


def _plan(runner: Runner, pace: Pace) -> tuple[int, int]:
    """Runs of a turn, and runs before it: enough to fill the times wanted."""
    seconds = runner.run(1)[-1]
    if seconds < _LONG_RUN * pace.warm_s:
        seconds = float(np.median(runner.run(_count(pace.warm_s, seconds, 2))))
    warm = 0 if seconds >= _LONG_RUN * pace.warm_s else _count(pace.warm_s, seconds, 1)
    return _count(pace.slice_s, seconds, pace.fewest), warm


def _count(wanted_s: float, each_s: float, fewest: int) -> int:
    return max(fewest, min(_MOST_REPEATS, math.ceil(wanted_s / max(each_s, 1e-7))))
