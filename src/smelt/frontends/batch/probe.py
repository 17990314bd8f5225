"""The first rows through the model: what its results are, and how it runs fastest.

Input: a job without result schema, batch size, workers and threads. Output: the job with them. Invariant: a number that
the user gave is kept; what is measured takes a few seconds, and nothing at all where the whole run takes no longer.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from smelt.base.errors import BatchError, InputError
from smelt.frontends.batch.functions import Function, as_table, call, halved, resolve, said
from smelt.frontends.batch.machine import peak_memory_bytes, usable_cpus, usable_memory_bytes
from smelt.frontends.batch.model_call import ModelCall
from smelt.frontends.batch.packages import package
from smelt.frontends.batch.part_writer import check_writable
from smelt.frontends.batch.prepare import Prepared, Preparer
from smelt.frontends.batch.records import Job, schema_from_text, schema_to_text
from smelt.frontends.batch.results import output_columns
from smelt.frontends.batch.sources.pieces import window_rows
from smelt.frontends.batch.worker import read_part

Array = npt.NDArray[Any]
_ROWS: Final = 2048
_PARTS: Final = 8
_TIMED_S: Final = 0.4
_BUDGET_S: Final = 12.0
_NOT_WORTH_S: Final = 5.0
_CALL_LIMIT_S: Final = 2.0
_USUAL_BATCH: Final = 32
_FIRST_BATCH: Final = 8
_MEMORY_SHARE: Final = 0.6
_BETTER: Final = 1.03
_MANY_PARTS: Final = 100


def probe(
    job: Job, wanted: Mapping[str, int], preprocess: Function | None = None, postprocess: Function | None = None
) -> Job:
    """`wanted`: batch, workers and threads as the user gave them, 0 for auto."""
    cpus = usable_cpus()
    threads = wanted["threads"] or max(1, cpus // max(1, wanted["workers"]))
    model = ModelCall(job.model, threads)
    batch = wanted["batch"] or model.fixed or _USUAL_BATCH
    before = preprocess or (resolve(job.preprocess.name) if job.preprocess else None)
    after = postprocess or (resolve(job.postprocess.name) if job.postprocess else None)
    preparer = Preparer(replace(job, threads=threads), model.inputs, before, batch)
    prepared = _first_rows(job, preparer, batch)
    schema = _result_schema(job, model, preparer, prepared, after)
    if prepared is None:
        return replace(job, result_schema=schema, batch=batch, workers=wanted["workers"] or 1, threads=threads)
    search = _Search(job, model, preparer, prepared, wanted, cpus)
    size, workers, each = search.found(threads)
    measured = tuple(search.measured)
    return replace(job, result_schema=schema, batch=size, workers=workers, threads=each, measured=measured)


def _first_rows(job: Job, preparer: Preparer, batch: int) -> Prepared | None:
    """A window that has rows to run; None where there is none in the first parts."""
    for part in job.parts[:_PARTS]:
        size = min(_ROWS, window_rows(job.files[part.file].row_bytes, batch))
        window = next(read_part(job, part, schema_from_text(job.schema), size), None)
        if window is None:
            continue
        prepared = preparer(window)
        if len(prepared.rows):
            return prepared
    return None


# What the results are


def _result_schema(
    job: Job, model: ModelCall, preparer: Preparer, prepared: Prepared | None, after: Function | None
) -> str:
    pa = package("pyarrow")
    given = schema_from_text(job.schema)
    kept = [given.field(name) for name in job.keep]
    if prepared is None:
        fields = [] if after is not None else _declared(model, job.outputs)
    else:
        fields = _made(job, model, preparer, prepared, after)
    clash = {field.name for field in kept} & {field.name for field in fields}
    if clash:
        raise InputError(
            "SM-BATCH-004", f"{', '.join(sorted(clash))}: a column that passes through and an output",
            hint="Name the columns that pass through with --keep, or the outputs with --outputs.",
        )  # fmt: skip
    schema = pa.schema([*(field.with_nullable(True) for field in kept), *fields])
    check_writable(schema, job.part_format)
    return schema_to_text(schema)


def _declared(model: ModelCall, outputs: Sequence[str]) -> list[Any]:
    """From the model's own shapes, where no row could be run."""
    made = {
        spec.name: np.zeros([2, *(d if isinstance(d, int) else 1 for d in (spec.shape or (2,))[1:])], spec.dtype)
        for spec in model.outputs
        if spec.dtype is not None
    }
    columns = output_columns(model.outputs, outputs, made, 2)
    pa = package("pyarrow")
    return [pa.field(column.name, column.arrow_type) for column in columns]


def _made(job: Job, model: ModelCall, preparer: Preparer, prepared: Prepared, after: Function | None) -> list[Any]:
    """From a call with two rows: an axis of two is then the batch's."""
    pa = package("pyarrow")
    reasons: list[str] = []
    few = np.arange(min(len(prepared.rows), 32))
    runs = halved(
        few, lambda rows: model.run(preparer, prepared, _two(rows, model.fixed), job.outputs),
        lambda _, error: reasons.append(said(error)),
    )  # fmt: skip
    if not runs:
        raise InputError("SM-BATCH-010", f"the model refuses each of the first {len(few)} rows: {reasons[0]}")
    rows, made = runs[0]
    count = len(_two(rows, model.fixed))
    if after is None:
        return [pa.field(c.name, c.arrow_type) for c in output_columns(model.outputs, job.outputs, made, count)]
    try:
        table = call(after, as_table(made, "the model"), job.batch_format, "the postprocessing function")
    except BatchError:
        raise
    except Exception as error:
        raise InputError("SM-BATCH-012", f"the postprocessing function failed: {said(error)}") from error
    return [pa.field(f.name, f.type) for f in table.schema]


def _two(rows: Array, fixed: int) -> Array:
    """A single row twice; no more rows than a fixed batch takes."""
    if fixed:
        return rows[:fixed]
    return np.concatenate([rows, rows]) if len(rows) == 1 else rows


# How it runs fastest


def evenness(parts: Sequence[int], workers: int) -> float:
    """The share of all workers' time that is used when each takes the next part: three equal parts keep two workers
    busy for 3/4 of it."""
    if len(parts) > _MANY_PARTS * workers or not sum(parts):
        return 1.0
    loads = [0] * workers
    for rows in parts:
        heapq.heapreplace(loads, loads[0] + rows)
    return sum(parts) / (workers * max(loads))


class _Search:
    """Times calls at several batch sizes, workers and threads."""

    def __init__(
        self, job: Job, model: ModelCall, preparer: Preparer, prepared: Prepared, wanted: Mapping[str, int], cpus: int
    ) -> None:
        self.job, self.model, self.preparer, self.prepared = job, model, preparer, prepared
        self.wanted, self.cpus = wanted, cpus
        self.measured: list[tuple[float, ...]] = []
        self.deadline = time.monotonic() + _BUDGET_S

    def found(self, threads: int) -> tuple[int, int, int]:
        """Batch size, workers, and threads of each."""
        workers, batch = self.wanted["workers"], self.wanted["batch"] or self.model.fixed
        splits = self._splits(threads)
        if batch and len(splits) == 1:
            return batch, *splits[0]
        usual = batch or _USUAL_BATCH
        rate = self._rate([self.model], usual, workers=1, threads=threads)
        if self.job.rows / rate < _NOT_WORTH_S:
            return usual, workers or 1, threads
        best = (0.0, workers or 1, threads, usual)
        for many, each in splits:
            if time.monotonic() > self.deadline or not self._fits(many):
                break
            calls = [self.model if each == threads and n == 0 else ModelCall(self.job.model, each) for n in range(many)]
            best = self._better(calls, many, each, batch, best)
        return best[3], best[1], best[2]

    def _splits(self, threads: int) -> list[tuple[int, int]]:
        """(workers, threads): one worker with all CPUs first, then more workers of fewer threads."""
        if self.wanted["workers"] or self.wanted["threads"]:
            return [(self.wanted["workers"] or max(1, self.cpus // threads), threads)]
        sizes = [self.cpus, *(size for size in (4, 2, 1) if size < self.cpus)]
        splits = [(max(1, self.cpus // size), size) for size in sizes]
        return [split for split in splits if split[0] <= max(1, len(self.job.parts))]

    def _better(
        self, calls: list[ModelCall], many: int, each: int, fixed: int, best: tuple[float, int, int, int]
    ) -> tuple[float, int, int, int]:
        batch = fixed or _FIRST_BATCH
        last = 0.0
        while time.monotonic() < self.deadline:
            rate = self._rate(calls, batch, workers=many, threads=each)
            even = rate * evenness([part.rows for part in self.job.parts], many)
            if even > best[0] * _BETTER:
                best = (even, many, each, batch)
            longest = batch / rate * many
            if fixed or rate < last * _BETTER or longest * 4 > _CALL_LIMIT_S or batch * 4 > len(self.prepared.rows):
                break
            last, batch = rate, batch * 4
        return best

    def _rate(self, calls: list[ModelCall], batch: int, workers: int, threads: int) -> float:
        """Rows per second of all calls together, over batches of short, middling and long rows."""
        rows = self.preparer.order(self.prepared)
        every = [rows[at : at + batch] for at in range(0, len(rows), batch)]
        chosen = [every[place] for place in sorted({0, len(every) // 2, max(0, len(every) - 2)})]
        feeds = [(self.model.feeds(self.preparer, self.prepared, one), len(one)) for one in chosen]
        counts = [0] * len(calls)
        ends = [0.0] * len(calls)
        started = time.perf_counter()

        def run(place: int) -> None:
            # The first call of a size is slower; whole rounds, so that every length counts alike.
            while ends[place] - started < _TIMED_S:
                for feed, count in feeds:
                    calls[place].call(feed, count, self.job.outputs)
                    counts[place] += count
                ends[place] = time.perf_counter()

        calls[0].call(*feeds[0], self.job.outputs)
        started = time.perf_counter()
        together = [threading.Thread(target=run, args=(place,)) for place in range(len(calls))]
        for thread in together:
            thread.start()
        for thread in together:
            thread.join()
        rate = sum(counts) / max(1e-9, max(ends) - started)
        self.measured.append((workers, threads, batch, rate))
        return rate

    def _fits(self, workers: int) -> bool:
        return workers == 1 or workers * peak_memory_bytes() < _MEMORY_SHARE * usable_memory_bytes()
