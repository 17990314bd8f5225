"""`smelt reduce`: a model that fails -> a few nodes that fail alike, with a script that shows it.

Input: a model that smelt compiles wrongly, or not, or that crashes, or a folder of dumped ones; or a test command of
the user's own. Output: a folder with the reduced model, its inputs and a script. Invariant: models run in processes of
their own only; the folder is written when the search has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smelt.cli import options as opt
from smelt.cli.output import Output, failed, reporting

if TYPE_CHECKING:
    from smelt.check.reduce import Reduced
    from smelt.cli.reduction import Reduction

Model = Annotated[
    Path, typer.Argument(help="An ONNX model, or a dumped folder.", show_default=False, metavar="MODEL.onnx|DIR")
]
Target = Annotated[Path, typer.Option("-o", "--output", help="Folder to write.", show_default="MODEL.reduced")]
Test = Annotated[
    str,
    typer.Option(
        "--test", metavar="CMD", help="A program that gets a model's path and exits with 0 if it still fails."
    ),
]
Timeout = Annotated[float, typer.Option("--timeout", min=1.0, help="Seconds for one try.")]
Tries = Annotated[int, typer.Option("--max-tries", min=1, help="End the search after this many tries.")]


def register(app: typer.Typer) -> None:
    app.command("reduce")(reduce_command)


def reduce_command(
    model: Model,
    output: Target = Path(),
    test: Test = "",
    shapes: opt.Shapes = None,
    inputs: opt.Inputs = None,
    seed: opt.Seed = 0,
    select: opt.Select = None,
    exclude: opt.Exclude = None,
    force: opt.Force = False,
    levels: opt.Levels = "",
    timeout: Timeout = 120.0,
    max_tries: Tries = 300,
    as_json: opt.Json = False,
    verbose: opt.Verbose = 0,
    quiet: opt.Quiet = False,
) -> None:
    """Shrink a model that fails to a few nodes that fail in the same way, with a script that shows it."""
    with reporting(as_json, verbose, quiet) as out:
        from smelt.base.config import Config
        from smelt.cli.reduction import Reduction
        from smelt.ir.load import load_model

        folder = output if output != Path() else model.with_suffix(".reduced")
        chosen = {
            "select": list(select or ()),
            "exclude": list(exclude or ()),
            "force": force,
            "levels": list(opt.parse_names(levels)),
        }
        limits = (chosen, test, timeout, Config.from_env())
        notes: list[str] = []
        for path, recorded in _subjects(model):
            reduction = Reduction(load_model(path), *limits)
            reduction.observe(opt.parse_shapes(shapes), opt.parse_files(inputs), seed, recorded)
            notes += reduction.notes
            out.lines(*(f"note: {note}" for note in reduction.notes))
            found = reduction.search(max_tries, lambda nodes, tries: out.lines(f"  {nodes} nodes after {tries} tries"))
            if found is not None:
                _write(folder, path, found, reduction, out)
                return
        out.facts(reduced=False, notes=notes)
        out.result("the model does not fail: nothing to reduce")
        failed(out)


def _write(folder: Path, path: Path, found: Reduced, reduction: Reduction, out: Output) -> None:
    from smelt.cli.reduction import write_repro
    from smelt.report import counted, op_name

    write_repro(folder, found, reduction)
    nodes = [f"{op_name(node)} {node.name or ''}".strip() for node in found.cut.model.graph]
    total = len(reduction.cutter.nodes)
    out.lines(f"{path.name}: {counted(len(nodes), 'node')} left of {total}: {', '.join(nodes[:8])}")
    out.lines(f"fails: {found.failure}", *([] if found.complete else ["the search ended early: --max-tries"]))
    out.result(str(folder))
    out.facts(reduced=True, output=str(folder), nodes=nodes, failure=found.failure, tries=found.probes)


def _subjects(place: Path) -> Iterator[tuple[Path, dict[str, Any] | None]]:
    """The model; of a dumped folder every model with its first recorded call."""
    from smelt.check.recorded import recorded_calls

    if not place.is_dir():
        beside = list(place.parent.glob(f"{place.stem}.call0.inputs.npz"))
        yield place, recorded_calls(place)[0].inputs() if beside else None
        return
    for call in recorded_calls(place):
        if not call.number:
            yield call.model, call.inputs()
