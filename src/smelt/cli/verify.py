"""`smelt verify`: an artifact against the model that it was made from.

Input: an artifact folder, a model, and inputs or seeds for generated ones. Output: errors by the numerics contract.
Invariant: the exit code is 1 when any output of any run breaks the contract.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smelt.cli import options as opt
from smelt.cli.output import failed, reporting

if TYPE_CHECKING:
    import onnx_ir as ir

ArtifactDir = Annotated[Path, typer.Argument(help="An artifact folder.", show_default=False, metavar="ARTIFACT")]
Against = Annotated[Path, typer.Option("--against", metavar="MODEL.onnx", help="The model.", show_default=False)]
Runs = Annotated[int, typer.Option("--runs", min=1, max=1000, help="How many generated inputs to try.")]

_MAX_REFERENCE_ELEMENTS = 5_000_000


def register(app: typer.Typer) -> None:
    app.command("verify")(verify_command)


def verify_command(
    artifact: ArtifactDir,
    against: Against,
    shapes: opt.Shapes = None,
    inputs: opt.Inputs = None,
    seed: opt.Seed = 0,
    runs: Runs = 3,
    threads: opt.Threads = 0,
    as_json: opt.Json = False,
    verbose: opt.Verbose = 0,
    quiet: opt.Quiet = False,
) -> None:
    """Compare an artifact's results with those of its model."""
    with reporting(as_json, verbose, quiet) as out:
        from smelt.report import table

        files = opt.parse_files(inputs)
        wanted = opt.parse_shapes(shapes)
        rows = [
            _compare(artifact, against, wanted, files, seed + place, threads) for place in range(1 if files else runs)
        ]
        columns = ("seed", "shapes", "error", "stock_error", "allowed", "verdict")
        out.lines(table(columns, [[row[c] for c in columns] for row in rows]))
        notes = dict.fromkeys(row["note"] for row in rows if row["note"])
        out.lines(*(f"note: {note}" for note in notes))
        right = all(row["right"] for row in rows)
        out.facts(right=right, runs=rows)
        out.result("verified" if right else "MISMATCH")
        if not right:
            failed(out)


def _compare(artifact: Path, against: Path, shapes: Any, files: Any, seed: int, threads: int) -> dict[str, Any]:
    import numpy as np

    from smelt.check.contract import compare_all, has_steps
    from smelt.cli.feeds import feed_attempts, first_that_runs
    from smelt.ir.load import load_model
    from smelt.ir.walk import model_nodes
    from smelt.runtime import Executable, SessionSettings, session_for

    model = load_model(against)
    steps = has_steps(node.op_type for node in model_nodes(model))
    settings = SessionSettings(threads=threads)
    stock = session_for(against, None, settings)
    feeds, expected = first_that_runs(
        feed_attempts(model, shapes, files, seed, "small"), lambda made: stock.run(None, made)
    )
    results = Executable.open(artifact, settings).run(feeds)
    reference, note = _reference(model, against, feeds, expected)
    found = compare_all(results, reference, expected, "model", steps=steps, stock_is_reference=bool(note))
    return {
        "seed": seed,
        "shapes": opt.shape_text({name: np.shape(array) for name, array in feeds.items()}),
        "error": f"{found.error:.1e}",
        "stock_error": None if found.stock_error is None or note else f"{found.stock_error:.1e}",
        "allowed": f"{found.tolerance:.0e}",
        "verdict": found.problem or "right",
        "right": not found.problem,
        "note": note,
    }


def _reference(model: ir.Model, path: Path, feeds: dict[str, Any], expected: list[Any]) -> tuple[list[Any], str]:
    """The float64 reference where it can be had in bearable time, else what stock ONNX Runtime gave."""
    from smelt.check.verify import evaluate_model

    constants = sum(v.const_value.size for v in model.graph.initializers.values() if v.const_value is not None)
    if constants > _MAX_REFERENCE_ELEMENTS:
        return expected, "compared with stock ONNX Runtime, as the model is large"
    if any(value.name not in feeds for value in model.graph.inputs):
        return expected, "compared with stock ONNX Runtime, as an input has a default"
    try:
        return evaluate_model(path, [feeds[value.name or ""] for value in model.graph.inputs]), ""
    except Exception as error:
        return expected, f"compared with stock ONNX Runtime, as there is no reference: {str(error)[:200]}"
