"""A source with clocks between launches.

Input: a `Source`. Output: the same source for profiling, and what its tables hold. Invariant: only the units that
launch kernels and the one that announces them are changed, so that the kernels are not compiled again.
"""

from __future__ import annotations

from dataclasses import replace

from smelt.ir.records import Source, Unit


def with_clocks(source: Source) -> Source:
    """The source of a library that LaunchClocks can read."""
    return replace(source, units=tuple(_clocked(unit) for unit in source.units))


def _clocked(unit: Unit) -> Unit:
    """What runs where hints are wrong is not timed."""
    return replace(unit, text=f"#define SMELT_PROFILE\n{unit.text}") if unit.entries and not unit.rare else unit


def launch_counts(source: Source) -> dict[str, int]:
    """Launches of each region's entry."""
    return {e.name: 1 + max((kernel.launch for kernel in e.kernels), default=-1) for e in source.entries}
