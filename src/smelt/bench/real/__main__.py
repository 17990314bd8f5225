"""`make real`: real pretrained models and architectures of timm through smelt, as a user would run them.

Input: parts of models' names, steps, threads. Output: a JSON file for each model, a summary, and with `--page` the
table of docs/real_models.md. Invariant: what was found is on disk after each step, and a stopped run goes on where it
ended; no model ends the run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from smelt.base.config import Config
from smelt.base.progress import Progress, open_progress
from smelt.base.sources import compiling_sources
from smelt.bench import Pace, Plan, describe_machine, find_peers, parse_threads
from smelt.bench.front_page import write_front_page
from smelt.bench.real.collect import KINDS, collect
from smelt.bench.real.page import findings, is_right, summary, write_page
from smelt.bench.real.results import Facts, Known, Step, Store
from smelt.bench.real.steps import Compiling, RealModel, compile_file, judge_sizes, time_sizes, verify_artifact

_STEPS: Final[tuple[Step, ...]] = ("compile", "verify", "right", "time")


def main(arguments: Sequence[str] | None = None) -> int:
    given = _arguments(arguments)
    config = Config.from_env()
    store = Store(given.results, {"smelt": compiling_sources()[:16], "machine": describe_machine()}, keep=given.keep)
    if given.report:
        print("\n".join(findings(store.all())))
        return 0
    if given.page:
        write_page(store.all(), describe_machine())
        write_front_page()
        return 0
    steps: list[Step] = [step for step in _STEPS if step in given.steps.split(",")]
    with open_progress(config) as progress:
        models = collect(given.kinds.split(","), given.names, config, progress)
        run = _Run(store, steps, _plan(given), config, progress, given.minutes * 60 if given.minutes else None)
        run.timed_sizes = given.sizes
        run.compiling = Compiling(config.cache_dir if given.warm else None, not given.no_timing)
        known = run.all(models)
    print("\n".join(summary(known, describe_machine())))
    wrong = [one for one in known if one.step("compile").get("problem") or (one.step("right") and not is_right(one))]
    return 1 if wrong else 0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m smelt.bench.real", description="Real models through smelt.")
    parser.add_argument(
        "names", nargs="*", help="parts of models' names, such as silero-vad or timm/resnet; default: all"
    )
    parser.add_argument("--kinds", default=",".join(KINDS), help="wheels, timm")
    parser.add_argument("--steps", default=",".join(_STEPS), help=f"of {', '.join(_STEPS)}")
    parser.add_argument("--threads", default="")
    parser.add_argument("--peers", default="ort,smelt,openvino")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=0.1, help="of a peer's turn")
    parser.add_argument("--sizes", type=int, default=9, help="time at so many sizes; all are judged")
    parser.add_argument("--warm", action="store_true", help="compile with the usual cache, which models share")
    parser.add_argument("--no-timing", action="store_true", help="compile without timing: keep kernels that are slower")
    parser.add_argument("--minutes", type=float, help="begin nothing after so long")
    parser.add_argument("--keep", action="store_true", help="take results of other sources and machines for good")
    parser.add_argument("--results", type=Path, default=Path("build/real"))
    parser.add_argument("--page", action="store_true", help="write docs/real_models.md and the README, run nothing")
    parser.add_argument("--report", action="store_true", help="print what is wrong or slow, run nothing")
    return parser.parse_args(arguments)


def _plan(given: argparse.Namespace) -> Plan:
    peers = find_peers(given.peers.split(","))
    return Plan(peers, parse_threads(given.threads), Pace(given.rounds, given.seconds, warm_s=0.03))


class _Run:
    timed_sizes: int = 9
    compiling: Compiling = Compiling()

    def __init__(
        self, store: Store, steps: Sequence[Step], plan: Plan, config: Config, progress: Progress, limit_s: float | None
    ) -> None:
        self.store, self.steps, self.plan, self.config, self.progress = store, steps, plan, config, progress
        self.ends = None if limit_s is None else time.monotonic() + limit_s

    def all(self, models: Sequence[RealModel]) -> list[Known]:
        bar = self.progress.task("models", len(models))
        found: list[Known] = []
        for model in models:
            known = self.store.read(model.name)
            known.about = {"source": model.source, "problem": model.problem}
            if not model.problem:
                known.about["bytes"] = model.path.stat().st_size
                for step in self.steps:
                    self._step(model, known, step)
            found.append(known)
            bar(model.name)
        for absent in (one for one in models if one.problem):
            print(f"{absent.name}: left out, {absent.problem}", file=sys.stderr, flush=True)
        return found

    def _step(self, model: RealModel, known: Known, step: Step) -> None:
        late = self.ends is not None and time.monotonic() > self.ends
        if late or self.store.has(known, step):
            return
        artifact = self.store.artifact(model.name)
        if step != "compile" and (known.step("compile").get("problem") or not artifact.is_dir()):
            return
        found = self._found(model, artifact, step)
        self.store.write(known, step, found)
        print(f"{model.name}: {step}: {_short(step, found)}", flush=True)

    def _found(self, model: RealModel, artifact: Path, step: Step) -> Facts:
        if step == "compile":
            return compile_file(model, artifact, self.compiling)
        if step == "verify":
            return verify_artifact(model, artifact)
        if step == "right":
            return judge_sizes(model, artifact, self.plan.threads)
        return time_sizes(model, artifact, self.plan, self.config, self.progress, self.timed_sizes)


def _short(step: Step, found: Facts) -> str:
    """One line while it runs."""
    if step == "compile":
        nodes = f"{found['in_kernels']} of {found['nodes']} nodes"
        return found["problem"] or f"{found['wall_s']:.1f} s ({found['cpu_s']:.1f} of CPU), {nodes}"
    if step == "verify":
        return found["problem"] or "agrees"
    if step == "right":
        wrong = [size["problem"] for size in found["sizes"] if size["problem"]]
        return wrong[0] if wrong else f"{len(found['sizes'])} sizes right"
    ratios = [row["ratio"] for row in found["rows"] if row.get("ratio")]
    return ", ".join(f"{value:.2f} [{low:.2f}, {high:.2f}]" for value, low, high in ratios)


if __name__ == "__main__":
    sys.exit(main())
