"""Peers, interleaved timing, rooflines: how fast a model runs, and whether the difference is real.

A worker process imports this package too and times what it imports, so the names below are loaded at first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smelt.bench.case_bench import Options, Plan
    from smelt.bench.cases import (
        Case,
        Size,
        file_case,
        find_scale,
        micro_case,
        micro_cases,
        parse_sizes,
        suite_cases,
        zoo_case,
        zoo_cases,
    )
    from smelt.bench.ledger import Ledger, dependencies
    from smelt.bench.outcome import Outcome, Row, as_facts, from_facts
    from smelt.bench.paired import Ratio, paired_ratio
    from smelt.bench.plot import write_plot
    from smelt.bench.render import print_table, to_csv, to_json, to_markdown
    from smelt.bench.suite import describe_machine, find_peers, parse_threads, run_suite
    from smelt.bench.summary import Summary, summarize
    from smelt.bench.timing import Pace, Series, interleave

_HOMES = {
    "case_bench": ("Options", "Plan"),
    "cases": (
        "Case",
        "Size",
        "file_case",
        "find_scale",
        "micro_case",
        "micro_cases",
        "parse_sizes",
        "suite_cases",
        "zoo_case",
        "zoo_cases",
    ),
    "ledger": ("Ledger", "dependencies"),
    "outcome": ("Outcome", "Row", "as_facts", "from_facts"),
    "paired": ("Ratio", "paired_ratio"),
    "plot": ("write_plot",),
    "render": ("print_table", "to_csv", "to_json", "to_markdown"),
    "suite": ("describe_machine", "find_peers", "parse_threads", "run_suite"),
    "summary": ("Summary", "summarize"),
    "timing": ("Pace", "Series", "interleave"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Case",
    "Ledger",
    "Options",
    "Outcome",
    "Pace",
    "Plan",
    "Ratio",
    "Row",
    "Series",
    "Size",
    "Summary",
    "as_facts",
    "dependencies",
    "describe_machine",
    "file_case",
    "find_peers",
    "find_scale",
    "from_facts",
    "interleave",
    "micro_case",
    "micro_cases",
    "paired_ratio",
    "parse_sizes",
    "parse_threads",
    "print_table",
    "run_suite",
    "suite_cases",
    "summarize",
    "to_csv",
    "to_json",
    "to_markdown",
    "write_plot",
    "zoo_case",
    "zoo_cases",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'smelt.bench' has no attribute {name!r}")
    return getattr(import_module(f"smelt.bench.{home}"), name)
