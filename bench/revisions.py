"""Two revisions of the sources against each other: speed, bits, compile time and library size of the model suite.

    python bench/revisions.py BASE_TREE [--new TREE] [--models resnet50,distilbert] [--threads 1,2] [--rounds 15]

Each tree is a checkout (`git worktree add`). Both compile every model in a process and a cache folder of their own,
without timing, so that the plan is the compiler's alone. Both artifacts then run in this process, in turns, on the
same feeds. Printed for each model: time of BASE over time of NEW with its interval (above 1 means that NEW is faster),
whether the outputs have the same bits, and the ratios NEW over BASE of compile time and of the library's bytes.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnxruntime as ort

from smelt.base import Config
from smelt.bench.cases import USUAL, Case, suite_cases
from smelt.bench.timing import Pace, interleave

HERE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Compiled:
    folder: Path
    seconds: float

    @property
    def library(self) -> Path | None:
        return next(self.folder.glob("*.so"), None)


def compiled(tree: Path, model: Path, folder: Path, kept_cache: bool) -> Compiled:
    """The artifact that the sources of `tree` make of the model."""
    environment = dict(os.environ, PYTHONPATH=str(tree / "src"))
    if not kept_cache:
        environment["SMELT_CACHE_DIR"] = str(folder.parent / f"{folder.name}-cache")
    command = [sys.executable, "-m", "smelt", "compile", str(model), "-o", str(folder), "--no-timing"]
    before = time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return Compiled(folder, time.perf_counter() - before)


class Bound:
    """A session with its inputs bound, as a runner of `interleave`."""

    def __init__(self, made: Compiled, case: Case, threads: int) -> None:
        options: Any = cast("Any", ort).SessionOptions()
        options.intra_op_num_threads = threads
        if made.library is not None:
            options.register_custom_ops_library(str(made.library))
        self.session: Any = ort.InferenceSession(
            str(made.folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self.binding: Any = self.session.io_binding()
        for name, array in case.feeds.items():
            self.binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array)))
        for output in self.session.get_outputs():
            self.binding.bind_output(output.name, "cpu")

    def run(self, repeat: int, warm: int = 0) -> list[float]:
        return [_seconds(lambda: self.session.run_with_iobinding(self.binding)) for _ in range(warm + repeat)][warm:]

    def outputs(self) -> list[Any]:
        self.run(1)
        return self.binding.copy_outputs_to_cpu()


def _seconds(call: Callable[[], object]) -> float:
    before = time.perf_counter()
    call()
    return time.perf_counter() - before


def compare(case: Case, both: tuple[Compiled, Compiled], threads: int, pace: Pace) -> tuple[float, str]:
    """The ratio, and a line that tells it."""
    base, new = (Bound(made, case, threads) for made in both)
    equal = all(a.tobytes() == b.tobytes() for a, b in zip(base.outputs(), new.outputs(), strict=True))
    first, second = interleave([base, new], pace)
    ratio = second.ratio_to(first)
    return ratio.value, f"{case.name:24} {threads} threads  {ratio}  {'same bits' if equal else 'other bits'}"


def sizes(both: tuple[Compiled, Compiled]) -> str:
    taken = both[1].seconds / both[0].seconds
    found = [made.library.stat().st_size if made.library else 0 for made in both]
    grown = found[1] / max(1, found[0])
    return f"compile {both[0].seconds:.1f} s, {taken:.2f}x; library {found[0] >> 10} KB, {grown:.3f}x"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare two revisions on the model suite.")
    parser.add_argument("base", type=Path)
    parser.add_argument("--new", type=Path, default=HERE)
    parser.add_argument("--models", default="", help="those of the suite that are named; all by default")
    parser.add_argument("--suite", default="models")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.25)
    parser.add_argument("--kept-cache", action="store_true", help="compile with the usual cache: times mean nothing")
    chosen = parser.parse_args()
    only = {name for name in chosen.models.split(",") if name}
    pace = Pace(rounds=chosen.rounds, slice_s=chosen.seconds)
    ratios: dict[int, list[float]] = {int(threads): [] for threads in chosen.threads.split(",")}
    for case in suite_cases(chosen.suite, Config.from_env(), (USUAL,), "full", only=only):
        with tempfile.TemporaryDirectory() as folder:
            trees = {"base": chosen.base.resolve(), "new": chosen.new.resolve()}
            made = [compiled(tree, case.model, Path(folder, name), chosen.kept_cache) for name, tree in trees.items()]
            both = (made[0], made[1])
            for threads, found in ratios.items():
                value, line = compare(case, both, threads, pace)
                found.append(value)
                print(f"{line}  {sizes(both)}", flush=True)
    for threads, found in ratios.items():
        mean = math.exp(sum(map(math.log, found)) / len(found))
        print(f"{threads} threads: {len(found)} models, geometric mean {mean:.3f}, least {min(found):.3f}")


if __name__ == "__main__":
    main()
