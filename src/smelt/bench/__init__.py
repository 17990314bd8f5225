"""Peers, interleaved timing, rooflines: how fast a model runs, and whether the difference is real.

A worker process imports this package too and times what it imports, so the names below are loaded at first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smelt.bench.cases import Case, file_case, find_scale, micro_case, micro_cases, suite_cases, zoo_case
    from smelt.bench.paired import Ratio, paired_ratio
    from smelt.bench.render import as_facts, print_table, to_csv, to_json, to_markdown
    from smelt.bench.suite import Options, Outcome, Plan, Row, find_peers, parse_threads, run_suite
    from smelt.bench.timing import Pace, Series, interleave

_HOMES = {
    "cases": ("Case", "file_case", "find_scale", "micro_case", "micro_cases", "suite_cases", "zoo_case"),
    "paired": ("Ratio", "paired_ratio"),
    "render": ("as_facts", "print_table", "to_csv", "to_json", "to_markdown"),
    "suite": ("Options", "Outcome", "Plan", "Row", "find_peers", "parse_threads", "run_suite"),
    "timing": ("Pace", "Series", "interleave"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Case",
    "Options",
    "Outcome",
    "Pace",
    "Plan",
    "Ratio",
    "Row",
    "Series",
    "as_facts",
    "file_case",
    "find_peers",
    "find_scale",
    "interleave",
    "micro_case",
    "micro_cases",
    "paired_ratio",
    "parse_threads",
    "print_table",
    "run_suite",
    "suite_cases",
    "to_csv",
    "to_json",
    "to_markdown",
    "zoo_case",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'smelt.bench' has no attribute {name!r}")
    return getattr(import_module(f"smelt.bench.{home}"), name)
