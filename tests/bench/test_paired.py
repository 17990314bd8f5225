"""Ratios of paired samples: right in the middle, honest at the edges."""

from __future__ import annotations

import numpy as np
import pytest

from smelt.bench.paired import FEWEST_ROUNDS, paired_ratio


def rounds(count: int, seed: int, speedup: float = 1.0) -> tuple[list[float], list[float]]:
    """Times whose level wanders between rounds, far more than the two sides differ within one."""
    rng = np.random.default_rng(seed)
    level = np.exp(rng.normal(0, 0.5, count))
    noise = np.exp(rng.normal(0, 0.02, (2, count)))
    return list(level * noise[0] * speedup), list(level * noise[1])


def test_a_speedup_is_found_through_noise_that_hits_both_sides():
    ratio = paired_ratio(*rounds(15, 1, speedup=1.2))
    assert ratio.low > 1.15 and ratio.high < 1.25
    assert ratio.verdict == "faster"


def test_swapped_sides_give_the_inverse():
    slow, fast = rounds(15, 2, speedup=1.3)
    there, back = paired_ratio(slow, fast), paired_ratio(fast, slow)
    assert there.value == pytest.approx(1 / back.value)
    assert there.low == pytest.approx(1 / back.high)
    assert back.verdict == "slower"


def test_equal_sides_are_called_equal_in_nearly_all_runs():
    verdicts = [paired_ratio(*rounds(12, seed)).verdict for seed in range(400)]
    assert verdicts.count("no difference") >= 390


def test_the_interval_holds_the_truth_as_often_as_it_says():
    found = [paired_ratio(*rounds(12, seed, speedup=1.1)) for seed in range(1000)]
    share = np.mean([ratio.low <= 1.1 <= ratio.high for ratio in found])
    assert 0.93 < share < 0.98


def test_few_rounds_prove_nothing():
    ratio = paired_ratio(*rounds(FEWEST_ROUNDS - 1, 3, speedup=2.0))
    assert ratio.verdict == "too few rounds"
    assert (ratio.low, ratio.high) == (0.0, float("inf"))
    assert paired_ratio(*rounds(FEWEST_ROUNDS, 3, speedup=2.0)).verdict == "faster"


def test_a_single_disturbed_round_does_not_decide():
    slow, fast = rounds(15, 4, speedup=1.2)
    fast[7] *= 50
    assert paired_ratio(slow, fast).verdict == "faster"


def test_differences_below_the_indifference_are_not_claimed():
    assert paired_ratio([1.005] * 20, [1.0] * 20).verdict == "no difference"


@pytest.mark.parametrize("lists", [([], []), ([1.0], [1.0, 2.0])], ids=["empty", "unequal"])
def test_lists_that_are_no_pairs_are_refused(lists: tuple[list[float], list[float]]):
    with pytest.raises(ValueError, match="paired"):
        paired_ratio(*lists)
