"""`smelt explain`: what happens to each node, and why.

Input: a model (compiled into a temporary folder) or an artifact. Output: text, JSON, an HTML page. Invariant: a model
is explained as `smelt compile` with the same options would compile it; nothing is left behind but the page.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smelt.cli import options as opt
from smelt.cli.output import Output, reporting

if TYPE_CHECKING:
    from smelt.pipeline import Options
    from smelt.report import Report

Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a self-contained HTML page.")]
Profile = Annotated[bool, typer.Option("--profile", help="Run the model, and say where the time goes.")]
Against = Annotated[
    Path | None, typer.Option("--against", metavar="MODEL.onnx", help="With --profile of an artifact: its stock model.")
]


def register(app: typer.Typer) -> None:
    app.command("explain")(explain_command)


def explain_command(
    subject: opt.Subject,
    html: Html = None,
    profile: Profile = False,
    against: Against = None,
    select: opt.Select = None,
    exclude: opt.Exclude = None,
    force: opt.Force = False,
    dims: opt.Dims = None,
    levels: opt.Levels = "",
    no_verify: opt.NoVerify = False,
    preoptimize: opt.Preoptimize = False,
    skip_pass: opt.SkipPass = None,
    patterns: opt.Patterns = None,
    shapes: opt.Shapes = None,
    inputs: opt.Inputs = None,
    seed: opt.Seed = 0,
    threads: opt.Threads = 0,
    as_json: opt.Json = False,
    verbose: opt.Verbose = 0,
    quiet: opt.Quiet = False,
) -> None:
    """Say what became of each node: regions, kernels, reasons, times."""
    with reporting(as_json, verbose, quiet) as out:
        from smelt.cli.profiling import RunRequest
        from smelt.pipeline import Options

        request = RunRequest(opt.parse_shapes(shapes), opt.parse_files(inputs), seed, threads) if profile else None
        if subject.is_dir():
            report = _explain_artifact(subject, request, against)
        else:
            chosen = Options(
                select=tuple(select or ()),
                exclude=tuple(exclude or ()),
                force=force,
                dims=opt.parse_dims(dims),
                levels=opt.parse_names(levels),
                preoptimize=preoptimize,
                skip_passes=tuple(skip_pass or ()),
                patterns=patterns,
                verify=not no_verify,
                threads=threads,
            )
            report = _explain_model(subject, chosen, request, out)
        _show(report, html, out)


def _explain_artifact(folder: Path, request: object, against: Path | None) -> Report:
    from smelt.cli.artifact_report import report_of_artifact
    from smelt.cli.profiling import RunRequest, profile_artifact

    times = profile_artifact(folder, against, request) if isinstance(request, RunRequest) else None
    return report_of_artifact(folder, times)


def _explain_model(path: Path, chosen: Options, request: object, out: Output) -> Report:
    from smelt.base.config import Config
    from smelt.cli.compiling import compile_model
    from smelt.cli.profiling import RunRequest, profile_compilation

    config = Config.from_env().with_(log="quiet" if out.quiet or out.as_json else None)
    with tempfile.TemporaryDirectory(prefix="smelt-explain-") as folder:
        made = compile_model(path, Path(folder) / "artifact", chosen, config, graph=True)
        times = profile_compilation(made, path, request) if isinstance(request, RunRequest) else None
        return made.report(times)


def _show(report: Report, html: Path | None, out: Output) -> None:
    from smelt.report import as_dict, format_html, format_report

    out.lines(format_report(report, full=out.verbose > 0).rstrip("\n"))
    out.facts(**as_dict(report, graph=out.verbose > 0, sources=out.verbose > 0))
    if html is not None:
        text = format_html(report)
        html.write_text(text, encoding="utf-8")
        out.lines("", f"page: {html} ({len(text.encode()) / 1e6:.1f} MB)")
        out.facts(page=str(html))
