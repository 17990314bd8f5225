"""Paired samples -> a ratio with its interval, and what may be said of it.

Input: two equally long lists of times, taken in the same rounds. Output: a `Ratio`. Invariant: nothing is assumed of
the times' distribution but that the logarithms of the rounds' ratios scatter symmetrically around the truth
(Wilcoxon's signed ranks, Hodges and Lehmann's estimate); the interval is exact for few rounds, not a large-sample
formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np

CONFIDENCE: Final = 0.95
# A difference is claimed at a stricter level: tables have dozens of rows, and A against A must not win in some.
CLAIM: Final = 0.99
# Smaller differences are not claimed, whatever the interval says: code placement alone moves a loop by as much.
INDIFFERENCE: Final = 0.01
FEWEST_ROUNDS: Final = 8  # with fewer, even all rounds on one side are no evidence at the level of a claim

Array = np.ndarray[Any, Any]
Verdict = Literal["faster", "slower", "no difference", "too few rounds"]


@dataclass(frozen=True)
class Ratio:
    """Time of the baseline over time of the other: above 1 means that the other is faster.

    With too few rounds the interval is everything.
    """

    value: float
    low: float
    high: float
    rounds: int
    certain: bool = False

    @property
    def verdict(self) -> Verdict:
        if self.rounds < FEWEST_ROUNDS:
            return "too few rounds"
        if self.certain and self.value >= 1 + INDIFFERENCE:
            return "faster"
        if self.certain and self.value <= 1 - INDIFFERENCE:
            return "slower"
        return "no difference"

    def __str__(self) -> str:
        known = self.rounds >= FEWEST_ROUNDS
        return f"{self.value:.2f}x [{self.low:.2f}, {self.high:.2f}]" if known else f"{self.value:.2f}x"


def paired_ratio(baseline: Sequence[float], other: Sequence[float]) -> Ratio:
    """How many times faster `other` is, from one time of each per round."""
    if len(baseline) != len(other) or len(baseline) == 0:
        raise ValueError("paired samples are two equally long lists")
    logs = np.log(np.asarray(baseline, np.float64)) - np.log(np.asarray(other, np.float64))
    count = len(logs)
    first, second = np.triu_indices(count)
    averages = np.sort((logs[first] + logs[second]) / 2)
    middle = float(np.median(averages))
    if count < FEWEST_ROUNDS:
        return Ratio(float(np.exp(middle)), 0.0, float("inf"), count)
    low, high = _interval(averages, _tail_rank(count, CONFIDENCE))
    claim_low, claim_high = _interval(averages, _tail_rank(count, CLAIM))
    return Ratio(float(np.exp(middle)), low, high, count, certain=claim_low > 1 or claim_high < 1)


def _interval(averages: Array, cut: int) -> tuple[float, float]:
    return float(np.exp(averages[cut])), float(np.exp(averages[len(averages) - 1 - cut]))


@lru_cache(maxsize=64)
def _tail_rank(count: int, confidence: float) -> int:
    """How many of the sorted pair averages lie outside the interval on each side."""
    # ways[s]: number of sign patterns whose positive ranks add up to s.
    ways = np.zeros(count * (count + 1) // 2 + 1)
    ways[0] = 1.0
    for rank in range(1, count + 1):
        moved = np.zeros_like(ways)
        moved[rank:] = ways[:-rank]
        ways = (ways + moved) / 2
    below = np.cumsum(ways)
    return max(0, int(np.searchsorted(below, (1 - confidence) / 2, side="right")) - 1)
