"""`smelt optimize`: passes only, a model -> a model.

Input: a model. Output: a plain ONNX model without smelt's kernels, and what the passes did. Invariant: inputs and
outputs keep names, types and order; the model given is not overwritten.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smelt.cli import options as opt
from smelt.cli.output import reporting

Target = Annotated[Path, typer.Option("-o", "--output", metavar="OUT.onnx", help="File to write.", show_default=False)]
OnlyPass = Annotated[
    list[str] | None, typer.Option("--pass", metavar="PASS", help="Run only this pass. May be repeated.")
]


def register(app: typer.Typer) -> None:
    app.command("optimize")(optimize_command)


def optimize_command(
    model: opt.ModelPath,
    output: Target,
    only: OnlyPass = None,
    skip_pass: opt.SkipPass = None,
    dims: opt.Dims = None,
    as_json: opt.Json = False,
    verbose: opt.Verbose = 0,
    quiet: opt.Quiet = False,
) -> None:
    """Simplify a model by smelt's passes, without kernels."""
    with reporting(as_json, verbose, quiet) as out:
        from smelt.ir.load import load_model
        from smelt.ir.save import save_model
        from smelt.passes import BindDims, run_passes
        from smelt.report import count_ops, table

        opt.refuse_same_file(model, output)
        loaded = load_model(model)
        before = count_ops(loaded)
        sizes = opt.parse_dims(dims)
        bound = [("bind-dims", BindDims(sizes)(loaded))] if sizes else []
        done = [*bound, *run_passes(loaded, only=only or None, skip=skip_pass or ())]
        save_model(loaded, output)
        after = count_ops(loaded)
        names = sorted({*before, *after}, key=lambda op: (-before.get(op, 0), op))
        rows = [(op, before.get(op, 0), after.get(op, 0)) for op in names]
        changed = rows if verbose else [row for row in rows if row[1] != row[2]]
        total = ("total", sum(before.values()), sum(after.values()))
        out.lines(table(("op", "before", "after"), [*changed, total]), "")
        out.lines(table(("pass", "what it did"), [(name, str(outcome)) for name, outcome in done]))
        out.result(str(output))
        out.facts(output=str(output), before=before, after=after)
        out.facts(passes=[{"name": name, "changes": dict(outcome.changes)} for name, outcome in done])
