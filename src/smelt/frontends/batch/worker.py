"""Parts -> part files: read, prepare, infer and write, at the same time.

Input: a job, and parts one after the other. Output: committed parts; what happens is told to `tell`. Invariant: at most
a few windows are in memory; a part that fails leaves nothing but its reason, and the next one goes on; an error that
every part would meet (a full disk, a broken function) ends the worker.

    parts -> [reader] -> windows -> [preparer] -> batches -> infer (the calling thread) -> results -> [writer] -> commit
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from smelt.base.errors import BatchError, SmeltError
from smelt.frontends.batch.functions import Function, as_table, call, halved, resolve, said
from smelt.frontends.batch.model_call import ModelCall
from smelt.frontends.batch.output_folder import OutputFolder, cannot_write
from smelt.frontends.batch.packages import package
from smelt.frontends.batch.part_writer import PartWriter
from smelt.frontends.batch.prepare import Prepared, Preparer
from smelt.frontends.batch.records import InputFile, Job, Part, RowError, Stages, Told, schema_from_text
from smelt.frontends.batch.results import Collector, OutputColumn, output_columns
from smelt.frontends.batch.sources import Piece, Window, format_of
from smelt.frontends.batch.sources.pieces import window_rows

Array = npt.NDArray[Any]
_TOLD_EVERY_S: Final = 0.2
_WINDOWS: Final = 1
_BATCHES: Final = 4


@dataclass(frozen=True)
class Item:
    """What goes from one stage to the next: a payload of a part, its end, or its failure."""

    part: Part
    kind: str  # window, batch, results, end, failed
    payload: Any = None


@dataclass(frozen=True)
class _Batch:
    prepared: Prepared
    rows: Array
    feeds: dict[str, Array]
    first: bool
    last: bool


class StoppedError(Exception):
    """The pool wants no more of this worker."""


class Worker:
    """The same in a process, in a thread and in a Ray actor."""

    def __init__(
        self, job: Job, *, preprocess: Function | None = None, postprocess: Function | None = None,
        tell: Callable[[Told], None] | None = None, max_errors: int | None = None, parts: Iterable[Part] | None = None,
    ) -> None:  # fmt: skip
        """`parts`: those of the one run, where it is known already: they are read while the model is loaded."""
        self.job = job
        self.folder = OutputFolder(Path(job.output))
        self.schema = schema_from_text(job.schema)
        self.result_schema = schema_from_text(job.result_schema) if job.result_schema else None
        self._stages, self._lock, self._told_at = Stages(), threading.Lock(), 0.0
        self._stop = threading.Event()
        self._ended_at = 0.0
        self._reading = self._begin(parts) if parts is not None else None
        self.model = ModelCall(job.model, job.threads)
        before = preprocess or (resolve(job.preprocess.name) if job.preprocess else None)
        self.after = postprocess or (resolve(job.postprocess.name) if job.postprocess else None)
        self.preparer = Preparer(job, self.model.inputs, before, job.batch)
        self.max_errors = max_errors
        self._tell = tell or _nobody
        self._columns: list[OutputColumn] | None = None

    # The stages

    def run(self, parts: Iterable[Part] = ()) -> None:
        """Make all parts that come, or those that the worker was made with. Raises what no part can survive."""
        windows, fatal = self._reading or self._begin(parts)
        self._reading = None
        batches: queue.Queue[Item | None] = queue.Queue(_BATCHES)
        results: queue.Queue[Item | None] = queue.Queue(_WINDOWS)
        threads = [
            self._stage(lambda: self._relay(windows, batches, self._prepared), fatal, batches),
            self._stage(lambda: self._write_all(results), fatal, None),
        ]
        try:
            self._relay(batches, results, self._inferred)
        except BaseException as error:
            fatal.append(error)
            self._stop.set()
        self._put(results, None)
        for thread in threads:
            thread.join()
        self._report(force=True)
        if fatal:  # the reader may wait for a part that never comes; it is a daemon
            raise next((error for error in fatal if not isinstance(error, StoppedError)), fatal[0])

    def _begin(self, parts: Iterable[Part]) -> tuple[queue.Queue[Item | None], list[BaseException]]:
        """Start to read: the windows that come, and where a thread puts what ends the run."""
        windows: queue.Queue[Item | None] = queue.Queue(_WINDOWS)
        fatal: list[BaseException] = []
        self._stage(lambda: self._read_all(parts, windows), fatal, windows)
        return windows, fatal

    def stop(self) -> None:
        """Drop what is under way. Safe to call from any thread."""
        self._stop.set()

    def _stage(
        self, run: Callable[[], None], fatal: list[BaseException], after: queue.Queue[Item | None] | None
    ) -> threading.Thread:
        def guarded() -> None:
            try:
                run()
            except BaseException as error:
                fatal.append(error)
                self._stop.set()
            if after is not None:
                self._put(after, None)

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    def _put(self, place: queue.Queue[Item | None], item: Item | None) -> None:
        while True:
            try:
                place.put(item, timeout=0.1)
                return
            except queue.Full:
                if self._stop.is_set():
                    if item is None:  # whoever waits for it looks at the flag as well
                        return
                    raise StoppedError from None

    def _get(self, place: queue.Queue[Item | None]) -> Item | None:
        while True:
            try:
                return place.get(timeout=0.1)
            except queue.Empty:
                if self._stop.is_set():
                    raise StoppedError from None

    def _relay(
        self, source: queue.Queue[Item | None], target: queue.Queue[Item | None],
        work: Callable[[Item], Iterator[Item]],
    ) -> None:  # fmt: skip
        """Items through one stage. A part that fails in it is skipped to its end."""
        failed = -1
        while (item := self._get(source)) is not None:
            if item.part.index == failed:
                continue
            if item.kind in {"end", "failed"}:
                self._put(target, item)
                continue
            try:
                for made in work(item):
                    self._put(target, made)
            except (SmeltError, StoppedError, MemoryError):
                raise
            except Exception as error:
                failed = item.part.index
                self._put(target, Item(item.part, "failed", said(error)))

    # Reading

    def _read_all(self, parts: Iterable[Part], windows: queue.Queue[Item | None]) -> None:
        for part in parts:
            try:
                for window in self._windows(part):
                    self._put(windows, Item(part, "window", window))
                self._put(windows, Item(part, "end"))
            except (SmeltError, StoppedError, MemoryError):
                raise
            except Exception as error:
                # A page that cannot be decoded, a file that is gone: pyarrow's and the system's own errors.
                self._put(windows, Item(part, "failed", f"cannot be read: {said(error)}"))

    def _windows(self, part: Part) -> Iterator[Window]:
        row_bytes = max(self.job.files[part.file].row_bytes, self._result_bytes())
        source = read_part(self.job, part, self.schema, window_rows(row_bytes, self.job.batch))
        while True:
            started = time.perf_counter()
            window = next(source, None)
            self._took("read", started)
            if window is None:
                return
            yield window

    def _result_bytes(self) -> float:
        return sum(_cell_bytes(field.type) for field in self.result_schema) if self.result_schema is not None else 0.0

    # Preparing

    def _prepared(self, item: Item) -> Iterator[Item]:
        started = time.perf_counter()
        prepared = self.preparer(item.payload)
        batches = list(prepared.batches)
        self._took("prepare", started)
        if not batches:
            yield Item(item.part, "batch", _Batch(prepared, np.empty(0, np.int64), {}, True, True))
        for place, rows in enumerate(batches):
            started = time.perf_counter()
            feeds = self.model.feeds(self.preparer, prepared, rows)
            self._took("prepare", started)
            yield Item(item.part, "batch", _Batch(prepared, rows, feeds, place == 0, place + 1 == len(batches)))

    # Inference

    def _inferred(self, item: Item) -> Iterator[Item]:
        batch: _Batch = item.payload
        started = time.perf_counter()
        with self._lock:
            self._stages.wait += started - self._ended_at if self._ended_at else 0.0
        bad = batch.prepared.bad
        whole = batch.rows

        def run(rows: Array) -> dict[str, Any]:
            if rows is whole:
                return self.model.call(batch.feeds, len(rows), self.job.outputs)
            return self.model.run(self.preparer, batch.prepared, rows, self.job.outputs)

        def failed(row: int, error: Exception) -> None:
            bad[int(batch.prepared.rows[row])] = f"the model: {said(error)}"

        made = halved(whole, run, failed)
        self._ended_at = time.perf_counter()
        with self._lock:
            self._stages.infer += self._ended_at - started
            self._stages.rows += len(whole)
            if batch.last:
                self._stages.rows += batch.prepared.count - len(batch.prepared.rows)
                self._stages.failed += len(bad)
        self._report()
        yield Item(item.part, "results", (batch, made))

    # Writing

    def _write_all(self, results: queue.Queue[Item | None]) -> None:
        open_parts = _Open(self)
        try:
            while (item := self._get(results)) is not None:
                started = time.perf_counter()
                try:
                    open_parts.take(item)
                except OSError as error:
                    raise cannot_write(self.folder.root, error) from error
                self._took("write", started)
        finally:
            open_parts.discard()

    def columns_of(self, made: dict[str, Any], rows: int) -> list[OutputColumn]:
        if self._columns is None:
            self._columns = output_columns(self.model.outputs, self.job.outputs, made, rows)
        return self._columns

    # Telling

    def tell(self, told: Told) -> None:
        self._report(force=True)
        self._tell(told)

    def _took(self, stage: str, started: float) -> None:
        with self._lock:
            setattr(self._stages, stage, getattr(self._stages, stage) + time.perf_counter() - started)

    def _report(self, force: bool = False) -> None:
        now = time.monotonic()
        if not force and now - self._told_at < _TOLD_EVERY_S:
            return
        self._told_at = now
        with self._lock:
            taken = self._stages.taken()
        self._tell(Told("progress", stages=taken))


def _nobody(told: Told) -> None:
    del told


class _Open:
    """The part that is being written, and the window that is being collected."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.writer: PartWriter | None = None
        self.collector: Collector | None = None
        self.errors: list[RowError] = []
        self.read = 0

    def take(self, item: Item) -> None:
        if item.kind == "failed":
            self.discard()
            self.worker.tell(Told("failed", item.part.index, str(item.payload)))
        elif item.kind == "end":
            self._finish(item.part)
        else:
            self._results(item.part, *item.payload)

    def _results(self, part: Part, batch: _Batch, made: list[tuple[Array, dict[str, Any]]]) -> None:
        worker = self.worker
        if batch.first:
            self.collector = Collector([], batch.prepared)
        assert self.collector is not None
        for rows, outputs in made:
            if worker.after is None:
                self.collector.columns = worker.columns_of(outputs, len(rows))
                self.collector.add(rows, outputs)
            else:
                self._postprocessed(batch, rows, outputs)
        if batch.last:
            self._write_window(part, batch.prepared)

    def _postprocessed(self, batch: _Batch, rows: Array, outputs: dict[str, Any]) -> None:
        function, collector, worker = self.worker.after, self.collector, self.worker
        assert function is not None and collector is not None
        table = as_table(outputs, "the model")

        def run(chosen: Array) -> Any:
            return call(function, table.take(chosen), worker.job.batch_format, "the postprocessing function")

        def failed(row: int, error: Exception) -> None:
            batch.prepared.bad[int(batch.prepared.rows[rows[row]])] = f"postprocessing: {said(error)}"

        for chosen, made in halved(np.arange(len(rows)), run, failed):
            collector.add_table(rows[chosen], made)

    def _write_window(self, part: Part, prepared: Prepared) -> None:
        worker, collector = self.worker, self.collector
        assert collector is not None and worker.result_schema is not None
        table = collector.table(worker.result_schema, worker.job.drop_failed)
        if self.writer is None:
            self.writer = self._open(part)
        self.writer.write(table)
        file = worker.job.files[part.file]
        first = part.first_row + self.read
        self.errors += [
            RowError(_place(file, prepared, row), first + row, why) for row, why in sorted(prepared.bad.items())
        ]
        self.read += prepared.count
        self.collector = None
        if worker.max_errors is not None and len(self.errors) > worker.max_errors:
            last = self.errors[-1]
            raise BatchError(
                "SM-BATCH-009",
                f"{len(self.errors)} rows failed, the last: row {last.row} of {last.file}: {last.reason}",
            )

    def _open(self, part: Part) -> PartWriter:
        worker = self.worker
        schema, job = worker.result_schema, worker.job
        return PartWriter(worker.folder, part, schema, job.part_format, list(job.keep))

    def _finish(self, part: Part) -> None:
        writer = self.writer or self._open(part)
        self.writer = None
        try:
            record = writer.close(self.errors)
        except BaseException:
            writer.discard()
            raise
        self.errors, self.read = [], 0
        self.worker.tell(Told("done", part.index, rows=record.rows, failed=len(record.errors)))

    def discard(self) -> None:
        if self.writer is not None:
            self.writer.discard()
        self.writer, self.collector, self.errors, self.read = None, None, [], 0


def _place(file: InputFile, prepared: Prepared, row: int) -> str:
    """The file of a row; of a folder of images, the image where its path is kept."""
    if file.format != "images" or "path" not in prepared.kept.column_names:
        return file.path
    return str(Path(file.path, prepared.kept.column("path")[row].as_py()))


def read_part(job: Job, part: Part, schema: Any, window_rows: int) -> Iterator[Window]:
    """The rows of one part. `schema`: the job's."""
    file = job.files[part.file]
    piece = Piece(part.first, part.last, part.rows)
    return format_of(file.format).read(Path(file.path), piece, schema, _used_columns(job), window_rows)


def _used_columns(job: Job) -> list[str]:
    """Columns that are read: those that feed the model, and those that pass through. A preprocessing function sees
    all."""
    if job.preprocess is not None:
        return list(schema_from_text(job.schema).names)
    wanted = [name for feed in job.feeds for name in feed.columns]
    return list(dict.fromkeys([*wanted, *job.keep]))


def _cell_bytes(kind: Any) -> float:
    """Of one cell, where its type tells; lists that vary are taken to be short."""
    pa = package("pyarrow")
    if pa.types.is_fixed_size_list(kind):
        return kind.list_size * _cell_bytes(kind.value_type)
    if pa.types.is_nested(kind):
        return 64.0
    return kind.bit_width / 8 if pa.types.is_primitive(kind) else 32.0
