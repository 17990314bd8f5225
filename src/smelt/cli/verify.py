"""`smelt verify`: an artifact against the model that it was made from.

Input: an artifact folder and a model; inputs, shapes, seeds and tolerances of the user's own if wanted. Output: errors
by the numerics contract. Invariant: the exit code is 1 when any output of any run breaks the contract; by default the
inputs, the sizes, the reference and the contract are those that compilation used, as the manifest tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from smelt.cli import options as opt
from smelt.cli.output import failed, reporting

if TYPE_CHECKING:
    import onnx_ir as ir

    from smelt.check.contract import Bounds
    from smelt.check.judge import Judge
    from smelt.runtime import Executable

ArtifactDir = Annotated[Path, typer.Argument(help="An artifact folder.", show_default=False, metavar="ARTIFACT")]
Against = Annotated[Path, typer.Option("--against", metavar="MODEL.onnx", help="The model.", show_default=False)]
Runs = Annotated[int, typer.Option("--runs", min=0, max=1000, help="How many other inputs to generate.")]
OwnSeed = Annotated[int | None, typer.Option("--seed", min=0, help="Generate other inputs, with this seed.")]
Rtol = Annotated[float | None, typer.Option("--rtol", min=0, help="Tolerance relative to each element; as numpy's.")]
Atol = Annotated[float | None, typer.Option("--atol", min=0, help="Absolute tolerance; as numpy's.")]

_COLUMNS = ("inputs", "shapes", "reference", "error", "stock_error", "allowed", "verdict")


def register(app: typer.Typer) -> None:
    app.command("verify")(verify_command)


def verify_command(
    artifact: ArtifactDir,
    against: Against,
    shapes: opt.Shapes = None,
    data: opt.InputData = None,
    inputs: opt.Inputs = None,
    seed: OwnSeed = None,
    runs: Runs = 0,
    rtol: Rtol = None,
    atol: Atol = None,
    threads: opt.Threads = 0,
    as_json: opt.Json = False,
    verbose: opt.Verbose = 0,
    quiet: opt.Quiet = False,
) -> None:
    """Compare an artifact's results with those of its model, on the inputs that compilation used or on others."""
    with reporting(as_json, verbose, quiet) as out:
        from smelt.check.contract import Bounds
        from smelt.report import table

        asked = _Asked(opt.parse_shapes(shapes), data, opt.parse_files(inputs), seed, runs)
        own = Bounds(rtol or 0.0, atol or 0.0) if rtol is not None or atol is not None else None
        rows, notes = _compared(artifact, against, asked, own, threads)
        out.lines(table(_COLUMNS, [[row[c] for c in _COLUMNS] for row in rows]))
        notes += [row["note"] for row in rows if row["note"]]
        out.lines(*(f"note: {note}" for note in dict.fromkeys(notes)))
        right = all(row["right"] for row in rows)
        out.facts(right=right, runs=rows, notes=notes)
        out.result("verified" if right else "MISMATCH")
        if not right:
            failed(out)


@dataclass(frozen=True)
class _Asked:
    shapes: Mapping[str, tuple[int, ...]]
    data: Path | None
    files: Mapping[str, Path]
    seed: int | None
    runs: int

    @property
    def others(self) -> bool:
        return bool(self.shapes or self.data or self.files or self.runs or self.seed is not None)


def _compared(
    artifact: Path, against: Path, asked: _Asked, own: Bounds | None, threads: int
) -> tuple[list[dict[str, Any]], list[str]]:
    from smelt.check.judge import Judge
    from smelt.check.op_types import op_types_of
    from smelt.ir.load import load_model
    from smelt.ir.walk import model_nodes
    from smelt.runtime import Executable, SessionSettings

    model = load_model(against)
    judge = Judge(against, "model", op_types_of(model_nodes(model)))
    executable = Executable.open(artifact, SessionSettings(threads=threads))
    notes: list[str] = []
    calls = list(_as_compiled(artifact, model, judge, notes)) if not asked.others else []
    calls = calls or list(_others(model, judge, asked))
    return [_row(label, feeds, stock, judge, executable, own) for label, feeds, stock in calls], notes


_Call = tuple[str, dict[str, Any], list[Any]]  # what it is called, its inputs, and what stock ONNX Runtime gives


def _as_compiled(artifact: Path, model: ir.Model, judge: Judge, notes: list[str]) -> Iterator[_Call]:
    """The calls that compilation compared, made again; none where they are not known or the model refuses them."""
    from smelt.check.bindings import bindings
    from smelt.check.recipes import Recipe, fill
    from smelt.runtime import read_manifest

    verified = read_manifest(artifact).get("verified")
    compared = cast("dict[str, Any]", verified).get("compared") if isinstance(verified, dict) else None
    if not compared or compared.get("given"):
        why = "were given" if compared else "are not in the manifest"
        notes.append(f"The inputs that compilation compared {why}; others were generated. Give them by --inputs.")
        return
    # An array depends on its place among the inputs, and a manifest has keys in an order of its own.
    names = [v.name for v in model.graph.inputs if v.name in compared["made"]]
    feeds = fill({name: Recipe.read(compared["made"][name]) for name in names if name}, compared["seed"])
    try:
        yield "as compiled", feeds, judge.stock(feeds)
    except Exception as error:
        notes.append(f"The model refuses the inputs that compilation compared: {' '.join(str(error).split())[:200]}")
        return
    for binding in bindings(compared["dims"], feeds):
        if dict(binding.sizes) in compared["bindings"]:
            yield str(binding), dict(binding.feeds), judge.stock(binding.feeds)


def _others(model: ir.Model, judge: Judge, asked: _Asked) -> Iterator[_Call]:
    from smelt.check.given_inputs import given_calls
    from smelt.cli.feeds import feed_attempts, first_that_runs

    for place, call in enumerate(given_calls(model, asked.data) if asked.data is not None else (), 1):
        attempts = feed_attempts(model.clone(), asked.shapes, {}, asked.seed or 0, "small", call)
        yield f"call {place}", *first_that_runs(attempts, judge.stock)
    first = asked.seed or 0
    runs = asked.runs or (1 if asked.files or asked.seed is not None else 0 if asked.data is not None else 3)
    for seed in range(first, first + runs):
        attempts = feed_attempts(model.clone(), asked.shapes, asked.files, seed, "small")
        yield f"seed {seed}", *first_that_runs(attempts, judge.stock)


def _row(
    label: str, feeds: dict[str, Any], stock: list[Any], judge: Judge, executable: Executable, own: Bounds | None
) -> dict[str, Any]:
    import numpy as np

    from smelt.check.contract import Comparison
    from smelt.check.events import short
    from smelt.check.judge import Judged

    try:
        found = judge(feeds, executable.run(feeds), stock, own)
    except Exception as error:  # whatever a runtime raises is the answer
        found = Judged(Comparison(float("inf"), problem=f"the artifact does not run: {short(error)}"))
    compared = found.comparison
    return {
        "inputs": label,
        "shapes": opt.shape_text({name: np.shape(array) for name, array in feeds.items()}),
        "reference": found.reference,
        "error": f"{compared.error:.1e}",
        "stock_error": None if compared.stock_error is None else f"{compared.stock_error:.1e}",
        "allowed": f"{compared.tolerance:.0e}",
        "verdict": compared.problem or "right",
        "right": not compared.problem,
        "note": found.note,
    }
