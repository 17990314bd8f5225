"""`smelt compile`: a model -> an artifact folder.

Input: a model's path and options. Output: the artifact, and a table of what happened. Invariant: the exit code is 0
only when the artifact is complete.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smelt.cli import options as opt
from smelt.cli.output import Output, reporting

if TYPE_CHECKING:
    from smelt.base.config import Config
    from smelt.report import Report

Target = Annotated[Path, typer.Option("-o", "--output", help="Artifact folder to write.", show_default="MODEL.smelt")]
Layout = Annotated[
    str,
    typer.Option("--layout", metavar="PROGRAM", help="A folder for sentence-transformers, optimum or triton."),
]
Companion = Annotated[
    Path | None,
    typer.Option("--from", metavar="FOLDER", help="With --layout: the Hugging Face folder with config and tokenizer."),
]
Dump = Annotated[Path | None, typer.Option("--dump", metavar="DIR", help="Write every stage into this folder.")]


def register(app: typer.Typer) -> None:
    app.command("compile")(compile_command)


def compile_command(
    model: opt.ModelPath,
    output: Target = Path(),
    select: opt.Select = None,
    exclude: opt.Exclude = None,
    force: opt.Force = False,
    dims: opt.Dims = None,
    target: opt.TargetArch = None,
    levels: opt.Levels = "",
    backend: opt.BackendNames = "",
    kernels: opt.Kernels = None,
    custom_ops: opt.CustomOps = None,
    device: opt.Device = "",
    no_verify: opt.NoVerify = False,
    tune: opt.Tune = False,
    no_timing: opt.NoTiming = False,
    tune_seconds: opt.TuneSeconds = 60.0,
    settings: opt.Settings = None,
    threads: opt.Threads = 0,
    inputs: opt.InputData = None,
    shapes: opt.Shapes = None,
    preoptimize: opt.Preoptimize = False,
    precision: opt.Precision = "",
    accuracy: opt.Accuracy = "exact",
    calibrate: opt.Calibrate = None,
    budget: opt.Budget = "",
    skip_pass: opt.SkipPass = None,
    patterns: opt.Patterns = None,
    strict: opt.Strict = False,
    min_coverage: opt.MinCoverage = 0.0,
    keep: opt.Keep = False,
    dump: Dump = None,
    layout: Layout = "",
    companion: Companion = None,
    as_json: opt.Json = False,
    verbose: opt.Verbose = 0,
    quiet: opt.Quiet = False,
) -> None:
    """Compile a model into an artifact: a folder with model, library and manifest for any ONNX Runtime."""
    with reporting(as_json, verbose, quiet) as out:
        from smelt.cli.arranging import placed
        from smelt.cli.compiling import compile_model
        from smelt.pipeline import Options
        from smelt.report import as_dict

        folder = output if output != Path() else model.with_suffix(".smelt")
        chosen = Options(
            select=tuple(select or ()),
            exclude=tuple(exclude or ()),
            force=force,
            dims=opt.parse_dims(dims),
            arch=target,
            levels=opt.parse_names(levels),
            backend=backend,
            device=device,
            skip_passes=tuple(skip_pass or ()),
            patterns=patterns,
            preoptimize=preoptimize,
            precision=precision,
            accuracy=accuracy,
            calibrate=calibrate,
            budget=opt.read_budget(budget, precision),
            verify=not no_verify,
            tune=tune,
            timing=not no_timing,
            tune_seconds=tune_seconds,
            settings=opt.read_settings(settings, tune),
            threads=threads,
            inputs=inputs,
            shapes=opt.parse_shapes(shapes),
            dump=dump,
            strict=strict,
            min_coverage=min_coverage,
            keep=keep,
        )
        with placed(model, folder, layout, companion, chosen) as (source, work, chosen):
            report = compile_model(source, work, chosen, _config(quiet or as_json, kernels, custom_ops)).report()
        _tell(out, report, 1 << 30 if verbose else 20)
        out.result(str(folder))
        out.facts(artifact=str(folder), **as_dict(report, graph=False, sources=False))


def _config(quiet: bool, kernels: list[Path] | None, custom_ops: list[Path] | None) -> Config:
    from smelt.base.config import Config, add_custom_op_libraries

    add_custom_op_libraries(custom_ops or ())
    return Config.from_env().with_(log="quiet" if quiet else None, kernels=tuple(kernels or ()) or None)


def _tell(out: Output, report: Report, limit: int) -> None:
    from smelt.report import (
        check_line,
        fault_lines,
        headline,
        ops_lines,
        reason_lines,
        region_lines,
        stage_lines,
        timed_lines,
    )

    out.lines(ops_lines(report, limit), "", region_lines(report, limit), "")
    if report.reasons:
        out.lines(reason_lines(report, limit), "")
    out.lines(stage_lines(report), "", check_line(report.check), fault_lines(report, limit), *timed_lines(report))
    out.lines(*(f"note: {note}" for note in report.notes))
    out.lines(headline(report))
