"""A model on disk -> a compilation with everything that reports need.

Input: a path, options, the output folder. Output: the pipeline's result and a picture of the graph it was made from.
Invariant: the picture shows the model as the plan saw it; where that cannot be had again, it shows the artifact's own
graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from smelt.base.config import Config
from smelt.base.errors import LoadError, ModelError
from smelt.base.progress import open_progress
from smelt.ir.load import load_model
from smelt.passes import BindDims, run_passes
from smelt.pipeline import Options, Result, compile_to
from smelt.report import Picture, Report, Times, draw, report_of


@dataclass(frozen=True)
class Compilation:
    result: Result
    picture: Picture
    title: str

    def report(self, times: Times | None = None) -> Report:
        return report_of(self.result, self.title, self.picture, times)


def compile_model(path: Path, output: Path, options: Options, config: Config, *, graph: bool = False) -> Compilation:
    """Compile with progress bars. `graph`: draw all nodes too, not only count them."""
    with open_progress(config) as progress:
        result = compile_to(path, output, options, config, progress)
    if not graph or options.preoptimize:
        return Compilation(result, Picture(result.counts), path.name)
    try:
        model = load_model(path)
    except (LoadError, ModelError):  # it went through as it is
        return Compilation(result, Picture(result.counts), path.name)
    if options.dims:
        BindDims(options.dims)(model)
    run_passes(model, skip=(*options.skip_passes, *result.skipped), patterns=options.patterns)
    return Compilation(result, draw(model, result.plan, result.counts), path.name)
