"""`smelt explain`: what happens to each node, and why.

Input: a model (compiled into a temporary folder) or an artifact. Output: text, JSON, an HTML page. Invariant: a model
is explained as `smelt compile` with the same options would compile it; nothing is left behind but the page.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smelt.cli import options as opt
from smelt.cli.output import Output, reporting

if TYPE_CHECKING:
    from smelt.base.errors import ConfigError
    from smelt.cli.profiling import RunRequest
    from smelt.pipeline import Options
    from smelt.report import Report

Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a self-contained HTML page.")]
Profile = Annotated[bool, typer.Option("--profile", help="Run the model, and say where the time goes.")]
Against = Annotated[
    Path | None, typer.Option("--against", metavar="MODEL.onnx", help="With --profile of an artifact: its stock model.")
]

Threads = Annotated[
    str,
    typer.Option("--threads", metavar="N[,N...]", help="Threads of a session; several: predict how the model scales."),
]
Bandwidth = Annotated[
    float,
    typer.Option("--bandwidth", min=0.0, metavar="GB/S", help="With several --threads: what memory gives to all."),
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
    threads: Threads = "0",
    bandwidth: Bandwidth = 0.0,
    as_json: opt.Json = False,
    verbose: opt.Verbose = 0,
    quiet: opt.Quiet = False,
) -> None:
    """Say what became of each node: regions, kernels, reasons, times."""
    with reporting(as_json, verbose, quiet) as out:
        from smelt.cli.profiling import RunRequest
        from smelt.pipeline import Options

        counts, alone = _parse_threads(threads)
        request = RunRequest(opt.parse_shapes(shapes), opt.parse_files(inputs), seed, alone, counts, bandwidth)
        if subject.is_dir():
            if counts:
                raise _needs_source()
            report = _explain_artifact(subject, request if profile else None, against)
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
                threads=alone,
            )
            report = _explain_model(subject, chosen, request, out, profile=profile)
        _show(report, html, out)


def _parse_threads(text: str) -> tuple[tuple[int, ...], int]:
    """Numbers of threads to predict for, and the number of a session's; one number is the latter."""
    from smelt.bench.scaling import parse_counts

    return ((), int(text)) if text.strip().isdecimal() else (parse_counts(text), 0)


def _needs_source() -> ConfigError:
    from smelt.base.errors import ConfigError

    return ConfigError(
        "SM-CONFIG-001", "an artifact has no source to time task by task", hint="Explain the model with --threads."
    )


def _explain_artifact(folder: Path, request: object, against: Path | None) -> Report:
    from smelt.cli.artifact_report import report_of_artifact
    from smelt.cli.profiling import RunRequest, profile_artifact

    times = profile_artifact(folder, against, request) if isinstance(request, RunRequest) else None
    return report_of_artifact(folder, times)


def _explain_model(path: Path, chosen: Options, request: RunRequest, out: Output, *, profile: bool) -> Report:
    from smelt.base.config import Config
    from smelt.cli.compiling import compile_model
    from smelt.cli.profiling import profile_compilation, scale_compilation

    config = Config.from_env().with_(log="quiet" if out.quiet or out.as_json else None)
    with tempfile.TemporaryDirectory(prefix="smelt-explain-") as folder:
        made = compile_model(path, Path(folder) / "artifact", chosen, config, graph=True)
        times = profile_compilation(made, path, request) if profile else None
        scaling = scale_compilation(made, path, request) if request.counts else None
        return replace(made.report(times), scaling=scaling)


def _show(report: Report, html: Path | None, out: Output) -> None:
    from smelt.report import as_dict, format_html, format_report

    out.lines(format_report(report, full=out.verbose > 0).rstrip("\n"))
    out.facts(**as_dict(report, graph=out.verbose > 0, sources=out.verbose > 0))
    if html is not None:
        text = format_html(report)
        html.write_text(text, encoding="utf-8")
        out.lines("", f"page: {html} ({len(text.encode()) / 1e6:.1f} MB)")
        out.facts(page=str(html))
