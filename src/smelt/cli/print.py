"""`smelt print`: a model as text.

Input: a model or an artifact folder. Output: one line per node. Invariant: names are escaped, so that nothing in a
model can disturb a terminal.
"""

from __future__ import annotations

from typing import Annotated

import typer

from smelt.cli import options as opt
from smelt.cli.output import reporting

Prepared = Annotated[bool, typer.Option("--prepared", help="Show the model after smelt's passes.")]


def register(app: typer.Typer) -> None:
    app.command("print")(print_command)


def print_command(subject: opt.Subject, prepared: Prepared = False, verbose: opt.Verbose = 0) -> None:
    """Print a model as text, one line per node."""
    with reporting(verbose=verbose) as out:
        from smelt.ir.load import load_model
        from smelt.ir.printer import format_model

        model = load_model(subject / "model.onnx" if subject.is_dir() else subject)
        if prepared:
            from smelt.passes import run_passes

            run_passes(model)
        out.result(format_model(model).rstrip("\n"))
