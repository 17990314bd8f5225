"""`make bench`: the project's measurements against all that is installed.

Input: names of runs, `compile`, `goals` or `table`. Output: tables on stdout; for each run a JSON file that a stopped
run is taken up from, and a page with plots; with `table`, the tables of the pages in this folder. Invariant: what was
measured is on disk after each case; results of other sources, settings or machines are not mixed in.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from smelt.base.config import Config
from smelt.base.progress import open_progress
from smelt.bench import (
    Ledger,
    Outcome,
    Pace,
    Plan,
    dependencies,
    describe_machine,
    find_peers,
    find_scale,
    from_facts,
    parse_threads,
    print_table,
    run_suite,
    write_plot,
)
from smelt.bench.architectures import find_model
from smelt.bench.cases import suite_cases
from smelt.bench.compile_time import measure_compile, print_compile_times
from smelt.bench.front_page import PAGES as FRONT_PAGES
from smelt.bench.front_page import write_front_page
from smelt.bench.goals import judge
from smelt.bench.published import PAGES, publish
from smelt.bench.runs import RUNS, Run, find_run
from smelt.bench.scaling import parse_counts, scale_case
from smelt.report import scaling_lines

_ENDINGS = "goals: what the results come to; table: write them into README.md and docs/benchmarks.md"


def main(arguments: Sequence[str] | None = None) -> None:
    given = _arguments(arguments)
    config = Config.from_env()
    for name in given.runs or ["micro", "models", "compile", "goals", "table"]:
        if name == "goals":
            _print_goals(given.results)
        elif name == "table":
            _write_tables(given.results)
        elif name == "scaling":
            _predict(given, config)
        elif name == "compile":
            names = given.only.split(",") if given.only else ["distilbert", "resnet-50", "chain"]
            print_compile_times([measure_compile(one, config, find_scale(given.scale)) for one in names])
        else:
            _measure(find_run(name), given, config)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    known = "; ".join(f"{run.name}: {run.about}" for run in RUNS.values())
    parser = argparse.ArgumentParser(prog="python -m smelt.bench", description="Time models against all peers.")
    parser.add_argument(
        "runs", nargs="*", help=f"{known}; compile: compile times; scaling: predicted with many threads; {_ENDINGS}"
    )
    parser.add_argument("--only", default="", help="models of the runs, by name")
    parser.add_argument("--peers", default="", help="instead of the run's own")
    parser.add_argument("--threads", default="")
    parser.add_argument("--rounds", type=int, help="instead of the run's own")
    parser.add_argument("--seconds", type=float, help="of a peer's turn, instead of the run's own")
    parser.add_argument("--minutes", type=float, help="leave what would take longer for the next call")
    parser.add_argument("--patience", type=float, default=600.0, help="seconds that a peer may take to open a model")
    parser.add_argument("--scale", default="full")
    parser.add_argument("--fresh", action="store_true", help="start again instead of going on where results end")
    parser.add_argument("--results", type=Path, default=Path("build/bench"))
    return parser.parse_args(arguments)


def _measure(run: Run, given: argparse.Namespace, config: Config) -> None:
    peers = find_peers(given.peers.split(",")) if given.peers else run.peers
    pace = Pace(given.rounds or run.rounds, given.seconds or run.seconds)
    plan = Plan(peers, parse_threads(given.threads), pace, patience_s=given.patience)
    path = given.results / f"{run.name}.json"
    if given.fresh:
        path.unlink(missing_ok=True)
    ledger = Ledger(path, {**dependencies(plan, describe_machine()), "scale": given.scale})
    print(f"{run.name}: {run.about}", flush=True)
    with open_progress(config) as progress:
        cases = run.cases(config, find_scale(given.scale), [name for name in given.only.split(",") if name])
        limit_s = given.minutes * 60 if given.minutes else None
        outcome = run_suite(cases, plan, config, progress, ledger, _say, limit_s)
    if ledger.set_aside:
        print(f"other results (peers, pace, sources or machine differ) are now in {ledger.set_aside}", flush=True)
    print_table(outcome, color=config.color)
    write_plot(outcome, path.with_suffix(".html"))


def _predict(given: argparse.Namespace, config: Config) -> None:
    """How each model scales, beside what was measured."""
    for case in suite_cases("models", config, scale=find_scale(given.scale), only=_names(given.only)):
        found = scale_case(case, parse_counts(given.threads or "1,2,4,8,16,32,64"), config.with_(log="quiet"))
        print("\n".join(scaling_lines(found)), end="\n\n", flush=True)


def _names(text: str) -> list[str]:
    return [find_model(name).name for name in text.split(",") if name]


def _say(text: str) -> None:
    print(text, flush=True)


def _print_goals(results: Path) -> None:
    for goal in judge(_stored(results)):
        print(goal)


def _write_tables(results: Path) -> None:
    for written in publish(_stored(results), [page for page in PAGES if page.is_file()]):
        print(written)
    if all(page.is_file() for page in FRONT_PAGES):
        write_front_page()


def _stored(results: Path) -> dict[str, Outcome]:
    paths = {name: results / f"{name}.json" for name in RUNS}
    return {
        name: from_facts(json.loads(path.read_text(encoding="utf-8"))) for name, path in paths.items() if path.is_file()
    }


if __name__ == "__main__":
    main()
