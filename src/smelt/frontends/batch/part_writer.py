"""Tables -> one part file.

Input: tables of one schema. Output: a file beside its place, and its digest. Invariant: the same tables give the same
bytes; nothing is at the part's own place before `OutputFolder.commit`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from smelt.base.errors import InputError
from smelt.frontends.batch.output_folder import HashingFile, OutputFolder
from smelt.frontends.batch.packages import package
from smelt.frontends.batch.records import Part, PartRecord, RowError


class PartWriter:
    """Writes one part. `close` or `discard` ends it."""

    def __init__(self, folder: OutputFolder, part: Part, schema: Any, part_format: str, kept: list[str]) -> None:
        self.folder, self.part = folder, part
        self.place = folder.part_path(part, part_format)
        self.aside = folder.aside / f"{self.place.name}.{os.getpid()}.{os.urandom(4).hex()}"
        self.file = HashingFile(self.aside)
        self.schema = schema
        self.rows = 0
        self._writer = _open_writer(package("pyarrow").PythonFile(self.file, mode="w"), schema, part_format, kept)

    def write(self, table: Any) -> None:
        self.rows += table.num_rows
        if table.num_rows:
            _write(self._writer, table)

    def close(self, errors: list[RowError]) -> PartRecord:
        self._writer.close()
        self.file.close()
        found = tuple(sorted(errors, key=lambda error: error.row))
        record = PartRecord(self.part.index, self.place.name, self.rows, self.file.size, self.file.sha256, found)
        self.folder.commit(self.aside, self.place, record)
        return record

    def discard(self) -> None:
        with suppress(Exception):  # a writer over a full disk cannot even be closed
            self._writer.close()
        with suppress(OSError):
            self.file.close()
        self.aside.unlink(missing_ok=True)


def check_writable(schema: Any, part_format: str) -> None:
    """Refuse columns of a type that the format does not know."""
    pa = package("pyarrow")
    for field in schema:
        alone = pa.schema([field])
        try:
            with _open_writer(pa.BufferOutputStream(), alone, part_format, []) as writer:
                writer.write_table(alone.empty_table())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(
                "SM-BATCH-005", f"column {field.name!r} cannot be written to {part_format}: {field.type}",
                hint="Leave it out of --keep, or write parts in another format: --format arrow.",
            ) from error  # fmt: skip


def _open_writer(sink: Any, schema: Any, part_format: str, kept: list[str]) -> Any:
    if part_format == "arrow":
        return package("pyarrow.ipc").new_file(sink, schema)
    # Results seldom repeat; columns that pass through often do.
    return package("pyarrow.parquet").ParquetWriter(sink, schema, use_dictionary=kept or False)


def _write(writer: Any, table: Any) -> None:
    if hasattr(writer, "write_table") and "parquet" in type(writer).__module__:
        writer.write_table(table, row_group_size=table.num_rows)
    else:
        writer.write_table(table.combine_chunks())
