"""Interleaving: the order of turns, and how long they are."""

from __future__ import annotations

from smelt.bench.timing import Pace, interleave


class FakeRunner:
    def __init__(self, name: str, each_s: float, log: list[str]) -> None:
        self.name, self.each_s, self.log = name, each_s, log
        self.turns: list[int] = []

    def run(self, repeat: int, warm: int = 0) -> list[float]:
        self.log.append(self.name)
        self.turns.append(repeat)
        return [self.each_s] * repeat


def test_rounds_turn_round_so_that_drift_hits_both_alike():
    log: list[str] = []
    runners = [FakeRunner("A", 0.001, log), FakeRunner("B", 0.002, log)]
    series = interleave(runners, Pace(rounds=4, slice_s=0.01, warm_s=0.001))
    assert "".join(log[-8:]) == "ABBAABBA"
    assert [len(s.rounds) for s in series] == [4, 4]


def test_a_turn_has_as_many_runs_as_fill_its_time():
    fast, slow = FakeRunner("A", 1e-4, []), FakeRunner("B", 0.5, [])
    interleave([fast, slow], Pace(rounds=1, slice_s=0.1, warm_s=0.01, fewest=3))
    assert fast.turns[-1] == 1000
    assert slow.turns[-1] == 3


def test_rounds_count_by_their_mean_and_percentiles_by_calls():
    class Uneven(FakeRunner):
        def run(self, repeat: int, warm: int = 0) -> list[float]:
            return [1.0, 2.0, 9.0][:repeat] + [2.0] * max(0, repeat - 3)

    (series,) = interleave([Uneven("A", 1.0, [])], Pace(rounds=8, slice_s=3.0, warm_s=0.0, fewest=3))
    assert series.median == 4.0
    assert series.percentile(50) == 2.0
    assert series.percentile(99) == 9.0


def test_interruptions_that_only_some_runs_meet_count_in_full():
    class Interrupted(FakeRunner):
        def run(self, repeat: int, warm: int = 0) -> list[float]:
            return [1.0] * (repeat - 1) + [1.0 + repeat]

    (series,) = interleave([Interrupted("A", 1.0, [])], Pace(rounds=8, slice_s=10.0, warm_s=0.0, fewest=10))
    assert series.median == 2.0
    assert series.percentile(50) == 1.0


def test_who_is_far_behind_the_best_other_stops_after_the_trial_and_is_compared_over_its_rounds():
    times = (("A", 0.9), ("B", 0.1), ("C", 0.5), ("D", 1.0))
    first, ours, near, far = (FakeRunner(name, each, []) for name, each in times)
    pace = Pace(rounds=9, slice_s=0.1, warm_s=0.01, trial=3)
    series = interleave([first, ours, near, far], pace, ours={1})
    assert [len(one.rounds) for one in series] == [9, 9, 9, 3]
    assert series[3].ratio_to(series[0]).rounds == 3
    assert series[1].ratio_to(series[2]).rounds == 9


def test_long_runs_are_not_warmed_up():
    long = FakeRunner("A", 0.5, [])
    interleave([long], Pace(rounds=2, slice_s=0.1, warm_s=0.05))
    assert long.turns == [1, 1, 1]
