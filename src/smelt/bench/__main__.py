"""`make bench`: the micro and model suites against all that is installed.

Input: command-line options. Output: the tables on stdout, and one JSON file per suite. Invariant: results are written
after each suite, so that a stopped run keeps what it measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from smelt.base.config import Config
from smelt.base.progress import open_progress
from smelt.bench import Pace, Plan, find_peers, find_scale, parse_threads, print_table, run_suite, suite_cases, to_json
from smelt.bench.compile_time import measure_compile, print_compile_times


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m smelt.bench", description="Time the suites against all peers.")
    parser.add_argument("--suites", default="micro,models")
    parser.add_argument("--peers", default="all")
    parser.add_argument("--threads", default="")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.25)
    parser.add_argument("--scale", default="full")
    parser.add_argument("--no-compile-times", action="store_true")
    parser.add_argument("--results", type=Path, default=Path("bench/results"))
    given = parser.parse_args(arguments)
    config = Config.from_env()
    plan = Plan(find_peers(given.peers.split(",")), parse_threads(given.threads), Pace(given.rounds, given.seconds))
    given.results.mkdir(parents=True, exist_ok=True)
    for suite in given.suites.split(","):
        with open_progress(config) as progress:
            cases = suite_cases(suite, config, scale=find_scale(given.scale))
            outcome = run_suite(cases, plan, config, progress)
        print_table(outcome, color=config.color)
        (given.results / f"{suite}.json").write_text(to_json(outcome), encoding="utf-8")
    if not given.no_compile_times:
        print_compile_times([measure_compile("distilbert", config, find_scale(given.scale))])


if __name__ == "__main__":
    main()
