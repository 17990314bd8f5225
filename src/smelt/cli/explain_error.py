"""`smelt explain-error`: what a code of the error catalogue means.

Input: a code, or nothing for the list. Output: title, explanation and fix. Invariant: everything comes from the
catalogue.
"""

from __future__ import annotations

from typing import Annotated

import typer

from smelt.cli import options as opt
from smelt.cli.output import reporting

Code = Annotated[str, typer.Argument(help="A code such as SM-LOAD-001; without one, all are listed.", metavar="[CODE]")]


def register(app: typer.Typer) -> None:
    app.command("explain-error")(explain_error_command)


def explain_error_command(code: Code = "", as_json: opt.Json = False, verbose: opt.Verbose = 0) -> None:
    """Say what an error code means and how it is mended."""
    with reporting(as_json, verbose) as out:
        from dataclasses import asdict

        from smelt.base.errors import CATALOGUE, explain
        from smelt.report.tables import table

        if not code:
            out.lines(table(("code", "meaning"), [(e.code, e.title) for e in CATALOGUE.values()], indent=""))
            out.facts(errors=[asdict(entry) for entry in CATALOGUE.values()])
            return
        entry = explain(code)
        out.lines(f"{entry.code}: {entry.title}", "", entry.explanation, "", f"try: {entry.fix}")
        out.facts(**asdict(entry))
