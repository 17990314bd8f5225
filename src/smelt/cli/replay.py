"""`smelt replay`: dumped models on the arrays that were recorded with them.

Input: a folder that `smelt.dump` wrote, or one model of it. Output: a table of calls: how far stock ONNX Runtime (or
smelt's kernels) is from what was recorded. Invariant: nothing in the folder is changed; the exit code is 1 when a call
differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from smelt.cli import options as opt
from smelt.cli.output import failed, reporting

Folder = Annotated[Path, typer.Argument(help="A dumped folder, or a model of it.", show_default=False, metavar="DIR")]
Kernels = Annotated[bool, typer.Option("--kernels", help="Compile the models by smelt; stock ONNX Runtime without.")]
Tolerance = Annotated[float, typer.Option("--tolerance", min=0.0, help="Allowed error, relative to |x| + rms(x).")]


def register(app: typer.Typer) -> None:
    app.command("replay")(replay_command)


def replay_command(
    folder: Folder,
    kernels: Kernels = False,
    tolerance: Tolerance = 1e-4,
    as_json: opt.Json = False,
    verbose: opt.Verbose = 0,
    quiet: opt.Quiet = False,
) -> None:
    """Run dumped models again and compare with what was recorded."""
    with reporting(as_json, verbose, quiet) as out:
        from smelt.check.recorded import recorded_calls, replay
        from smelt.report import counted, readable, table

        done = [replay(call, _compiled if kernels else _stock, tolerance) for call in recorded_calls(folder)]
        rows = [
            (d.call.model.name, d.call.number, d.nodes, f"{d.error:.1e}", readable(d.problem, 100) or "same")
            for d in done
        ]
        out.lines(table(("model", "call", "nodes", "error", "result"), rows))
        wrong = sum(bool(d.problem) for d in done)
        out.result(f"{counted(len(done), 'call')}: {len(done) - wrong} the same, {wrong} different")
        out.facts(calls=[
            {"model": d.call.model.name, "call": d.call.number, "nodes": d.nodes, "error": d.error,
             "problem": d.problem}
            for d in done
        ])  # fmt: skip
        if wrong:
            failed(out)


def _stock(model: Path, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
    from smelt.runtime import session_for

    session = session_for(model)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, dict(feeds)), strict=True))


def _compiled(model: Path, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
    import smelt

    with smelt.compile(model) as made:
        names = [output.name for output in made.outputs]
        return dict(zip(names, made.run(dict(feeds)), strict=True))
