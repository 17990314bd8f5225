"""`smelt batch`: a model over a data set.

Input: a model, patterns of files, an output folder. Output: a folder of part files, and a report. Invariant: the exit
code is 0 when every row has a result, 4 when some rows have none, 1 when parts failed, 130 when interrupted; finished
parts are valid in every case.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smelt.cli import options as opt
from smelt.cli.output import reporting

FAILED_ROWS = 4
INTERRUPTED = 130

Model = Annotated[
    str,
    typer.Argument(
        help="An ONNX model (compiled first), an artifact, a saved module, or a SentenceTransformer's folder.",
        show_default=False,
        metavar="MODEL|ARTIFACT",
    ),
]
Inputs = Annotated[
    list[str],
    typer.Option(
        "-i",
        "--inputs",
        metavar="PATTERN",
        help="Files or folders; quote patterns. May be repeated.",
        show_default=False,
    ),
]
OutputDir = Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder of parts.", show_default=False)]
Map = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="INPUT=COLUMN", help="Column of a model input; several, a,b,c, make a vector."),
]
Keep = Annotated[
    str | None, typer.Option("--keep", metavar="COLUMNS", help="Columns that pass through: a,b; '*' all; '' none.")
]
Outputs = Annotated[str, typer.Option("--outputs", metavar="NAMES", help="Outputs to write; all by default.")]
TextColumn = Annotated[str | None, typer.Option("--text", metavar="COLUMN", help="Column that is tokenized.")]
Tokenizer = Annotated[
    Path | None, typer.Option("--tokenizer", metavar="PATH", help="A tokenizer.json, or the folder that holds it.")
]
MaxLength = Annotated[
    int, typer.Option("--max-length", min=0, help="Tokens of a text at most; 0: as the tokenizer says.")
]
Image = Annotated[
    list[str] | None,
    typer.Option("--image", metavar="STEPS", help="Steps for images, e.g. resize=256,crop=224,layout=nchw."),
]
Cast = Annotated[bool, typer.Option("--cast", help="Convert numbers to the model's type even where that rounds.")]
DropFailed = Annotated[bool, typer.Option("--drop-failed", help="Leave failed rows out; they are null otherwise.")]
Preprocess = Annotated[
    str | None, typer.Option("--preprocess", metavar="MODULE:FUNCTION", help="Called with each batch of rows.")
]
Postprocess = Annotated[
    str | None, typer.Option("--postprocess", metavar="MODULE:FUNCTION", help="Called with each batch of outputs.")
]
BatchFormat = Annotated[str, typer.Option("--batch-format", help="What functions are given: arrow or numpy.")]
Format = Annotated[str, typer.Option("--format", help="Format of the parts: parquet or arrow.")]
Batch = Annotated[str, typer.Option("--batch", metavar="N|auto", help="Rows of one call of the model.")]
Workers = Annotated[str, typer.Option("--workers", metavar="N|auto", help="Processes, or actors of a Ray cluster.")]
Threads = Annotated[str, typer.Option("--threads", metavar="N|auto", help="Threads of each worker's session.")]
Ray = Annotated[
    str | None, typer.Option("--ray", metavar="ADDRESS|local", help="Run on a Ray cluster, or on a local one.")
]
Restart = Annotated[bool, typer.Option("--restart", help="Remove the parts of an earlier run first.")]
MaxErrors = Annotated[int | None, typer.Option("--max-errors", min=0, help="Stop when more rows than this failed.")]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.1, help="Seconds without a sign after which a worker hangs.")
]
Stock = Annotated[bool, typer.Option("--stock", help="Run an ONNX model as it is, without compiling it.")]


def register(app: typer.Typer) -> None:
    app.command("batch")(batch_command)


def batch_command(
    model: Model,
    inputs: Inputs,
    output: OutputDir,
    map: Map = None,
    keep: Keep = None,
    outputs: Outputs = "",
    text: TextColumn = None,
    tokenizer: Tokenizer = None,
    max_length: MaxLength = 0,
    image: Image = None,
    cast: Cast = False,
    drop_failed: DropFailed = False,
    preprocess: Preprocess = None,
    postprocess: Postprocess = None,
    batch_format: BatchFormat = "arrow",
    format: Format = "parquet",
    batch: Batch = "auto",
    workers: Workers = "auto",
    threads: Threads = "auto",
    ray: Ray = None,
    restart: Restart = False,
    max_errors: MaxErrors = None,
    timeout: Timeout = 600.0,
    stock: Stock = False,
    as_json: opt.Json = False,
    verbose: opt.Verbose = 0,
    quiet: opt.Quiet = False,
) -> None:
    """Run a model over files: Parquet, Arrow, CSV, JSON lines, npy, images. A rerun goes on where it stopped.

    Exit codes: 0 every row has a result, 4 some rows failed (listed in _smelt/errors.jsonl), 1 parts failed, 2 bad
    input, 130 interrupted.
    """
    with reporting(as_json, verbose, quiet) as out:
        from smelt.base.config import Config
        from smelt.base.progress import open_progress
        from smelt.frontends.batch import batch as run

        config = Config.from_env().with_(log="quiet" if quiet or as_json else None)
        with open_progress(config) as progress:
            report = run(
                model,
                inputs,
                output,
                map=parse_map(map),
                keep=None if keep is None else opt.parse_names(keep),
                outputs=opt.parse_names(outputs),
                text=text,
                tokenizer=tokenizer,
                max_length=max_length,
                image=image or (),
                cast=cast,
                drop_failed=drop_failed,
                preprocess=preprocess,
                postprocess=postprocess,
                batch_format=batch_format,
                format=format,
                batch=batch,
                workers=workers,
                threads=threads,
                ray=ray,
                restart=restart,
                max_errors=max_errors,
                timeout_s=timeout,
                stock=stock,
                config=config,
                progress=progress,
            )
        out.lines(report.lines())
        out.result(str(output))
        out.facts(**report.to_json())
        code = INTERRUPTED if report.interrupted else FAILED_ROWS if report.failed_rows else 0
        if code:
            out.finish()
            raise typer.Exit(code)


def parse_map(texts: list[str] | None) -> dict[str, str]:
    """`input=column` -> columns by input."""
    from smelt.base.errors import ConfigError

    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, column = text.partition("=")
        if not equals or not name or not column:
            raise ConfigError("SM-CONFIG-001", f"--map {text!r} is not INPUT=COLUMN", hint="Write --map x=features.")
        found[name] = column
    return found
