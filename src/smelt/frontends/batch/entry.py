"""`smelt.batch`: the order of a run, on one page.

Input: a model, patterns of files, an output folder, options. Output: a `Report`; parts in the folder. Invariant:
nothing is written outside of the output folder; finished parts are never touched again, and whatever ends the run
leaves them valid.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from smelt.base.config import Config
from smelt.base.errors import BatchError, ConfigError, InputError
from smelt.base.progress import Progress, Silent
from smelt.frontends.batch.crew import Crew, how_it_died, listen, start
from smelt.frontends.batch.functions import Function, resolve
from smelt.frontends.batch.models import Named, inputs_to_compile, named, opened
from smelt.frontends.batch.output_folder import OutputFolder
from smelt.frontends.batch.packages import package
from smelt.frontends.batch.plan import Wanted, check_mapping, check_same, concat_allowed, find_data, make_job
from smelt.frontends.batch.pool import Pool
from smelt.frontends.batch.probe import probe
from smelt.frontends.batch.records import Job, PartRecord
from smelt.frontends.batch.report import Report, Watcher, limit_of, write_report

Auto = int | str


def batch(
    model: Any, inputs: str | Path | Sequence[str | Path], output: str | Path, *, map: Mapping[str, str] | None = None,
    keep: Sequence[str] | None = None, outputs: Sequence[str] = (), text: str | None = None,
    tokenizer: str | Path | None = None, max_length: int = 0, image: str | Sequence[str] = (), cast: bool = False,
    drop_failed: bool = False, preprocess: Function | str | None = None, postprocess: Function | str | None = None,
    batch_format: str = "arrow", format: str = "parquet", batch: Auto = "auto", workers: Auto = "auto",
    threads: Auto = "auto", ray: str | None = None, restart: bool = False, max_errors: int | None = None,
    timeout_s: float = 600.0, stock: bool = False, config: Config | None = None, progress: Progress | None = None,
    options: Mapping[str, Any] | None = None,
) -> Report:  # fmt: skip
    """Run a model over files, and write a folder of part files.

        smelt.batch("model.onnx", "in/*.parquet", "out/", map={"x": "features"}, keep=["id"])

    `model`: an ONNX file (compiled first), an artifact, a saved module, a SentenceTransformer or its folder. `map`:
    columns by model input. `keep`: columns that pass through; all that do not feed the model where it is left out.
    `preprocess(rows)` and `postprocess(outputs)` are called batch by batch with a pyarrow Table, or with a dictionary
    of numpy arrays where `batch_format="numpy"`, and return either. `options`: those of `smelt.compile`. The rest is as
    in `smelt batch --help`. Rows that fail are null in the output and listed in `out/_smelt/errors.jsonl`.
    """
    package("pyarrow")
    wanted = Wanted(
        map=dict(map or {}), keep=keep, outputs=tuple(outputs), text=text, max_length=max_length,
        tokenizer=str(tokenizer) if tokenizer else None, image=(image,) if isinstance(image, str) else tuple(image),
        cast=cast, drop_failed=drop_failed, preprocess=preprocess, postprocess=postprocess,
        batch_format=_one_of("batch_format", batch_format, ("arrow", "numpy")), part_format=format,
        batch=_number("batch", batch),
    )  # fmt: skip
    sizes = {"batch": wanted.batch, "workers": _number("workers", workers), "threads": _number("threads", threads)}
    _check_limits(max_errors, timeout_s)
    run = _Run(wanted, sizes, config or Config.from_env(), progress or Silent(), stock, dict(options or {}))
    folder = OutputFolder(Path(output).expanduser())
    folder.check()
    what = named(model)
    with folder.locked():
        if restart:
            folder.restart()
        folder.clean()
        job = run.plan(folder, what, inputs)
        return run.make(folder, job, max_errors, timeout_s, ray)


def _one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ConfigError("SM-CONFIG-001", f"{name}={value!r} is not one of {', '.join(known)}")
    return value


def _check_limits(max_errors: int | None, timeout_s: float) -> None:
    if max_errors is not None and max_errors < 0:
        raise ConfigError("SM-CONFIG-001", f"max_errors={max_errors} is below 0")
    if not timeout_s > 0:
        raise ConfigError("SM-CONFIG-001", f"timeout_s={timeout_s:g} is not above 0")


def _number(name: str, value: Auto) -> int:
    """0 for auto."""
    if value == "auto":
        return 0
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if number < 1:
        text = f"--{name} {value!r} is neither auto nor a number from 1 on"
        raise ConfigError("SM-CONFIG-001", text, hint=f"Write --{name} auto, or --{name} 4.")
    return number


class _Run:
    """One call of `batch`."""

    def __init__(
        self, wanted: Wanted, sizes: Mapping[str, int], config: Config, progress: Progress, stock: bool,
        options: dict[str, Any],
    ) -> None:  # fmt: skip
        self.wanted, self.sizes, self.config, self.progress = wanted, sizes, config, progress
        self.stock, self.options = stock, options

    # What is to be done

    def plan(self, folder: OutputFolder, what: Named, inputs: Any) -> Job:
        """The job, whole. A rerun takes from the earlier job what was found then."""
        earlier = folder.earlier()
        data = find_data(inputs, earlier)
        if earlier is not None and earlier.model.digest.removeprefix("stock ") != what.digest:
            then = earlier.model.source
            raise InputError(
                "SM-BATCH-007", f"{folder.root} was made with another model: now {what.source}, then {then}"
            )
        if specs := inputs_to_compile(what, folder, self.stock):
            tokenized = what.kind == "sentences" or bool(self.wanted.tokenizer or what.tokenizer)
            check_mapping(specs, data, self.wanted, tokenized)
        model = opened(what, folder, self.config, self.progress, self.stock, self.options)
        kept = folder.own / "tokenizer.json"
        job = make_job(folder.root, model, data, self.wanted, kept if kept.is_file() else what.tokenizer)
        if earlier is None:
            job = self._probed(job)
        else:
            check_same(job, earlier, self.sizes["batch"])
            if not concat_allowed(earlier, job):
                raise InputError("SM-BATCH-007", f"{folder.root} was made of parts that begin and end elsewhere now")
            job = replace(
                job, result_schema=earlier.result_schema, batch=earlier.batch, measured=earlier.measured,
                workers=self.sizes["workers"] or earlier.workers, threads=self.sizes["threads"] or earlier.threads,
            )  # fmt: skip
        folder.write_job(job)
        return job

    def _probed(self, job: Job) -> Job:
        crew = self._crew(job, None)
        if not crew.in_processes:
            return probe(job, self.sizes, crew.preprocess, crew.postprocess)
        with tempfile.TemporaryFile() as log:
            began = start(replace(job, threads=1), {"mode": "probe", "wanted": dict(self.sizes)}, log)
            for told in listen(began):
                if told["kind"] == "probed":
                    timed: list[list[float]] = told["found"].pop("measured")
                    return replace(job, **told["found"], measured=tuple(tuple(one) for one in timed))
                if "raised" in told:
                    raise told["raised"]
            raise BatchError(
                "SM-BATCH-010",
                f"the first rows could not be run: the worker {how_it_died(began.process.returncode, log)}",
            )

    def _crew(self, job: Job, max_errors: int | None) -> Crew:
        crew = Crew(job, max_errors=max_errors)
        for name in ("preprocess", "postprocess"):
            function = getattr(self.wanted, name)
            setattr(crew, name, resolve(function) if isinstance(function, str) else function)
        return crew

    # Doing it

    def make(self, folder: OutputFolder, job: Job, max_errors: int | None, timeout_s: float, ray: str | None) -> Report:
        finished = folder.finished(job)
        left = [part for part in job.parts if part.index not in finished]
        rows_before = sum(job.parts[index].rows for index in finished)
        failed_before = sum(len(record.errors) for record in finished.values())
        watcher = Watcher(job.rows, rows_before, failed_before, self.progress, max_errors)
        ended = False
        try:
            if left and ray is not None:
                from smelt.frontends.batch.ray_run import run_on_ray

                ended = run_on_ray(job, left, watcher, ray, self._crew(job, max_errors), max_errors)
            elif left:
                ended = Pool(self._crew(job, max_errors), left, watcher, timeout_s).run(job.workers)
            else:
                ended = True
        finally:
            folder.clean()
            report = self._reported(folder, job, watcher, finished, ended)
        if report.parts_failed:
            first = next(iter(report.parts_failed.items()))
            named_part = job.parts[first[0]]
            raise BatchError(
                "SM-BATCH-010",
                f"{len(report.parts_failed)} of {report.parts} parts failed; part {first[0]} "
                f"({job.files[named_part.file].path}, rows {named_part.first_row} to "
                f"{named_part.first_row + named_part.rows - 1}): {first[1]}",
            )
        return report

    def _reported(
        self, folder: OutputFolder, job: Job, watcher: Watcher, before: Mapping[int, PartRecord], ended: bool
    ) -> Report:
        seconds = time.monotonic() - watcher.started
        records = folder.finished(job)
        failed = folder.write_errors(iter(records[index] for index in sorted(records)))
        made = [index for index in records if index not in before]
        rows = sum(job.parts[index].rows for index in made)
        report = Report(
            output=str(folder.root), rows=job.rows, failed_rows=failed, parts=len(job.parts), parts_done=len(made),
            parts_skipped=len(before), parts_failed=watcher.parts_failed,
            interrupted=not ended and not watcher.parts_failed,
            seconds=seconds, rows_done=rows, rows_per_second=rows / max(seconds, 1e-9), batch=job.batch,
            seconds_to_ready=watcher.ready_at,
            workers=job.workers, threads=job.threads,
            stages={name: getattr(watcher.stage_sums, name) for name in ("read", "prepare", "infer", "write", "wait")},
            limited_by=limit_of(watcher.stage_sums, seconds, job.workers), errors=str(folder.errors),
            rates=watcher.thinned(), measured=[list(one) for one in job.measured], notes=watcher.notes,
        )  # fmt: skip
        write_report(report, folder.put, folder.own)
        return report
