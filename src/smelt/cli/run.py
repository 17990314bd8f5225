"""`smelt run`: a model or an artifact on given or generated inputs.

Input: a model (compiled on the way) or an artifact, shapes and files. Output: a table of the outputs, and .npy files
if asked for. Invariant: output files are named by number; names of the model become content of outputs.json, never a
path.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from smelt.cli import options as opt
from smelt.cli.output import Output, reporting

if TYPE_CHECKING:
    from smelt.runtime import Executable, OutputSpec, Session

OutputDir = Annotated[Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write outputs as .npy files.")]
Stock = Annotated[bool, typer.Option("--stock", help="Run the model as it is, without compiling it.")]


def register(app: typer.Typer) -> None:
    app.command("run")(run_command)


def run_command(
    subject: opt.Subject,
    shapes: opt.Shapes = None,
    inputs: opt.Inputs = None,
    output: OutputDir = None,
    seed: opt.Seed = 0,
    threads: opt.Threads = 0,
    stock: Stock = False,
    as_json: opt.Json = False,
    verbose: opt.Verbose = 0,
    quiet: opt.Quiet = False,
) -> None:
    """Run a model or an artifact once, on given or generated inputs."""
    with reporting(as_json, verbose, quiet) as out:
        wanted, files = opt.parse_shapes(shapes), opt.parse_files(inputs)
        if stock or subject.is_dir():
            _run(subject, wanted, files, seed, threads, output, out)
            return
        import smelt
        from smelt.base.config import Config
        from smelt.base.progress import open_progress

        config = Config.from_env().with_(log="quiet" if quiet or as_json else None)
        with open_progress(config) as progress:
            compiled = smelt.compile(subject, config=config, progress=progress, threads=threads)
        with compiled:
            _run_with(compiled.executable, subject, wanted, files, seed, output, out)


def _run(
    subject: Path, shapes: Mapping[str, tuple[int, ...]], files: Mapping[str, Path], seed: int, threads: int,
    output: Path | None, out: Output,
) -> None:  # fmt: skip
    from smelt.runtime import Executable, SessionSettings, session_for

    settings = SessionSettings(threads=threads)
    if subject.is_dir():
        _run_with(Executable.open(subject, settings), subject / "model.onnx", shapes, files, seed, output, out)
    else:
        _run_with(session_for(subject, None, settings), subject, shapes, files, seed, output, out)


def _run_with(
    runner: Executable | Session, model: Path, shapes: Mapping[str, tuple[int, ...]], files: Mapping[str, Path],
    seed: int, output: Path | None, out: Output,
) -> None:  # fmt: skip
    import time

    from smelt.cli.feeds import feed_attempts, first_that_runs
    from smelt.ir.load import load_model
    from smelt.report import in_time
    from smelt.runtime import Executable, output_specs, run_once

    specs = runner.outputs if isinstance(runner, Executable) else output_specs(runner)

    def call(feeds: dict[str, Any]) -> list[Any]:
        return runner.run(feeds) if isinstance(runner, Executable) else run_once(runner, feeds)

    feeds, _ = first_that_runs(feed_attempts(load_model(model), shapes, files, seed), call)
    started = time.perf_counter()
    results = call(feeds)
    seconds = time.perf_counter() - started
    _show(feeds, specs, results, out)
    out.lines(f"one run: {in_time(seconds * 1e6)}")
    out.facts(seconds=seconds)
    if output is not None:
        _write(output, specs, results, out)


def _show(feeds: Mapping[str, Any], specs: tuple[OutputSpec, ...], results: list[Any], out: Output) -> None:
    from smelt.report import readable, table

    given = [_facts(readable(name), array) for name, array in feeds.items()]
    made = [_facts(readable(spec.name), value) for spec, value in zip(specs, results, strict=True)]
    columns = ("name", "dtype", "shape", "min", "mean", "max", "nan")
    for title, rows in (("inputs", given), ("outputs", made)):
        out.lines(f"{title}:", table(columns, [[row[c] for c in columns] for row in rows]))
    out.facts(inputs=given, outputs=made)


def _facts(name: str, value: Any) -> dict[str, Any]:
    import numpy as np

    if not isinstance(value, np.ndarray):
        return dict.fromkeys(("min", "mean", "max", "nan"), None) | {
            "name": name,
            "dtype": type(value).__name__,
            "shape": "-",
        }
    numbers = cast("np.ndarray[Any, Any]", value)
    facts: dict[str, Any] = {"name": name, "dtype": str(numbers.dtype), "shape": str(list(numbers.shape))}
    if numbers.size == 0 or numbers.dtype.kind not in "fiub":
        return facts | dict.fromkeys(("min", "mean", "max", "nan"), None)
    wide = numbers.astype(np.float64)
    missing = int(np.isnan(wide).sum())
    known = wide[~np.isnan(wide)] if missing else wide
    with np.errstate(all="ignore"):
        found = (known.min(), known.mean(), known.max()) if known.size else (float("nan"),) * 3
    return facts | {"min": f"{found[0]:.5g}", "mean": f"{found[1]:.5g}", "max": f"{found[2]:.5g}", "nan": missing}


def _write(folder: Path, specs: tuple[OutputSpec, ...], results: list[Any], out: Output) -> None:
    import json

    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    index: list[dict[str, Any]] = []
    for place, (spec, value) in enumerate(zip(specs, results, strict=True)):
        file = f"output_{place}.npy"
        if isinstance(value, np.ndarray) and cast("Any", value).dtype.kind != "O":
            np.save(folder / file, cast("Any", value), allow_pickle=False)
            index.append({"name": spec.name, "file": file})
        else:
            index.append({"name": spec.name, "file": None})
    (folder / "outputs.json").write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    out.lines(f"written: {folder}")
    out.facts(written=str(folder), files=index)
