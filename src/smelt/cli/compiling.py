"""A model on disk -> a compilation with everything that reports need.

Input: a path, options, the output folder. Output: the pipeline's result and a picture of the graph it was made from.
Invariant: the picture shows the model as the plan saw it; where that cannot be had again, it shows the artifact's own
graph.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from smelt.base.config import Config
from smelt.base.progress import open_progress
from smelt.ir.load import load_model
from smelt.passes import BindDims, run_passes
from smelt.pipeline import Options, Result, Stage, compile_to
from smelt.report import Picture, Report, Times, count_ops, draw, report_of


@dataclass(frozen=True)
class Compilation:
    result: Result
    picture: Picture
    title: str
    load_seconds: float

    def report(self, times: Times | None = None) -> Report:
        # The model was loaded here, before the pipeline's clock ran.
        others = [stage for stage in self.result.stages if stage.name != "load"]
        timed = replace(self.result, stages=(Stage("load", self.load_seconds), *others))
        return report_of(timed, self.title, self.picture, times)


def compile_model(path: Path, output: Path, options: Options, config: Config, *, graph: bool = False) -> Compilation:
    """Compile with progress bars. `graph`: draw all nodes too, not only count them."""
    started = time.monotonic()
    model = load_model(path)
    seconds = time.monotonic() - started
    original = count_ops(model)
    with open_progress(config) as progress:
        result = compile_to(model, output, options, config, progress, path.name)
    if not graph or options.preoptimize:
        return Compilation(result, Picture(original), path.name, seconds)
    if options.dims:
        BindDims(options.dims)(model)
    run_passes(model, skip=options.skip_passes, patterns=options.patterns)
    return Compilation(result, draw(model, result.plan, original), path.name, seconds)
