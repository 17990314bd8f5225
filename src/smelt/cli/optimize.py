"""`smelt optimize`: passes only, a model -> a model.

Input: a model. Output: a plain ONNX model without smelt's kernels, and what the passes did. Invariant: inputs and
outputs keep names, types and order; the model given is not overwritten.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smelt.cli import options as opt
from smelt.cli.output import reporting

if TYPE_CHECKING:
    import onnx_ir as ir

    from smelt.passes import Outcome


def _list_patterns(wanted: bool) -> None:
    if not wanted:
        return
    from smelt.passes import patterns
    from smelt.report import table

    typer.echo("\n".join(table(("pass or rule", "sets", "what it does"), patterns.describe())))
    raise typer.Exit


Listed = Annotated[
    bool,
    typer.Option("--list-patterns", callback=_list_patterns, is_eager=True, help="Print passes, rules and sets."),
]
Applications = Annotated[
    Path | None,
    typer.Option("--dump-patterns", metavar="DIR", help="Write what each pass or rule changed, place by place."),
]
OnlyPass = Annotated[
    list[str] | None, typer.Option("--pass", metavar="PASS", help="Run only this pass. May be repeated.")
]


def register(app: typer.Typer) -> None:
    app.command("optimize")(optimize_command)


def optimize_command(
    model: opt.ModelPath,
    output: opt.OutputModel,
    only: OnlyPass = None,
    skip_pass: opt.SkipPass = None,
    patterns: opt.Patterns = None,
    dump_patterns: Applications = None,
    list_patterns: Listed = False,
    dims: opt.Dims = None,
    as_json: opt.Json = False,
    verbose: opt.Verbose = 0,
    quiet: opt.Quiet = False,
) -> None:
    """Simplify a model by smelt's passes and rules, without kernels."""
    del list_patterns
    with reporting(as_json, verbose, quiet) as out:
        from smelt.base.errors import ConfigError
        from smelt.ir.load import load_model
        from smelt.ir.save import save_model
        from smelt.passes import BindDims
        from smelt.report import count_ops, pass_rows, pass_table, table

        if only and patterns:
            raise ConfigError("SM-CONFIG-001", "--pass and --patterns exclude each other")
        opt.refuse_same_file(model, output)
        loaded = load_model(model)
        before = count_ops(loaded)
        sizes = opt.parse_dims(dims)
        bound = [("bind-dims", BindDims(sizes)(loaded))] if sizes else []
        done = [*bound, *_run(loaded, only, skip_pass, patterns, dump_patterns)]
        save_model(loaded, output)
        after = count_ops(loaded)
        names = sorted({*before, *after}, key=lambda op: (-before.get(op, 0), op))
        rows = [(op, before.get(op, 0), after.get(op, 0)) for op in names]
        changed = rows if verbose else [row for row in rows if row[1] != row[2]]
        total = ("total", sum(before.values()), sum(after.values()))
        out.lines(table(("op", "before", "after"), [*changed, total]), "")
        ran = pass_rows(done)
        out.lines(pass_table(ran))
        out.result(str(output))
        out.facts(output=str(output), before=before, after=after)
        out.facts(passes=[asdict(row) for row in ran])


def _run(
    model: ir.Model, only: list[str] | None, skip: list[str] | None, patterns: str | None, dump: Path | None
) -> list[tuple[str, Outcome]]:
    from smelt.passes import run_passes

    return run_passes(model, only=only or None, skip=skip or (), patterns=patterns, dump=dump)
