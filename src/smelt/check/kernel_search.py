"""Sizes of single kernels: all kernels are timed at once, each by its own clock.

Input: what `LaunchClocks` read of one library per candidate, round by round. Output: the kernels that are faster with
another value of a setting. Invariant: kernels that share a launch share a clock, and are judged together; a kernel
keeps its default unless it is faster beyond the noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from smelt.check.findings import Trial
from smelt.check.intervals import median_interval
from smelt.codegen import KernelSetting
from smelt.ir.records import Source

Ticks = Mapping[str, Sequence[float]]  # of each launch, by entry
GAIN: Final = 1.03  # of a kernel's own time: less is noise


@dataclass(frozen=True)
class Team:
    """Kernels that are launched together somewhere, and all launches that they take part in."""

    kernels: frozenset[str]
    launches: frozenset[tuple[str, int]]

    def spent(self, ticks: Ticks) -> float:
        return sum(ticks[entry][place] for entry, place in self.launches)


def teams_of(source: Source) -> tuple[Team, ...]:
    """Every kernel is in one team."""
    teams: list[Team] = []
    for entry in source.entries:
        for info in entry.kernels:
            mine = Team(frozenset((info.name,)), frozenset(((entry.name, info.launch),)))
            near = [team for team in teams if team.kernels & mine.kernels or team.launches & mine.launches]
            teams = [team for team in teams if team not in near]
            teams.append(_joined([mine, *near]))
    return tuple(teams)


def _joined(teams: Iterable[Team]) -> Team:
    every = list(teams)
    return Team(
        frozenset[str]().union(*(t.kernels for t in every)),
        frozenset[tuple[str, int]]().union(*(t.launches for t in every)),
    )


def judge(
    setting: KernelSetting, kernels: Sequence[str], teams: Sequence[Team], base: Sequence[Ticks],
    others: Mapping[int, Sequence[Ticks]],
) -> tuple[Trial, ...]:  # fmt: skip
    """For each kernel that feels the setting, what became of its team's time with each value; the best is kept."""
    trials: list[Trial] = []
    for team in teams:
        mine = [kernel for kernel in kernels if kernel in team.kernels]
        found = _ratios(team, base, others) if mine else {}
        best = max(found, key=lambda value: found[value][0], default=None)
        for kernel in mine:
            for value, (ratio, low) in found.items():
                kept = value == best and ratio > GAIN and low > 1
                trials.append(Trial(setting.of(kernel), value, ratio, low, kept))
    return tuple(trials)


def _ratios(team: Team, base: Sequence[Ticks], others: Mapping[int, Sequence[Ticks]]) -> dict[int, tuple[float, float]]:
    """How many times as fast the team was with each value, and the lower end of the 95% interval."""
    found: dict[int, tuple[float, float]] = {}
    for value, rounds in others.items():
        pairs = [(team.spent(before), team.spent(after)) for before, after in zip(base, rounds, strict=True)]
        ratios = [before / after for before, after in pairs if after > 0]
        if ratios:
            ratio, low, _ = median_interval(ratios)
            found[value] = (ratio, low)
    return found
