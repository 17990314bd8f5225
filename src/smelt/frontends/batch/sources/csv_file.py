"""CSV and TSV: a range of bytes is a piece.

Input: a path; the first line names the columns. Output: facts, windows. Invariant: a record that cannot be parsed is a
bad row of its window, and every other row keeps its place. Types are inferred from the first piece, and hold for all.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from smelt.base.errors import InputError
from smelt.frontends.batch.packages import package
from smelt.frontends.batch.sources.line_ranges import line_pieces, read_range
from smelt.frontends.batch.sources.pieces import Facts, Piece, Window
from smelt.frontends.batch.sources.salvage import table_of_rows


class CsvFormat:
    def inspect(self, path: Path) -> Facts:
        names, start = _header(path)
        pieces = line_pieces(path, start, quoted=True)
        pa = package("pyarrow")
        if not pieces:
            return Facts(pa.schema([(name, pa.null()) for name in names]), ())
        data = read_range(path, pieces[0].first, pieces[0].last)
        try:
            schema = _parsed(data, path, names, None).schema
        except pa.ArrowInvalid:
            # A broken record in it: the types of what can be read.
            records = [row for row in _records(data, path) if len(row) == len(names)]
            schema = _parsed(_written(records), path, names, None, ",").schema
        return Facts(schema, pieces, len(data) / pieces[0].rows)

    def read(self, path: Path, piece: Piece, schema: Any, columns: Sequence[str], window_rows: int) -> Iterator[Window]:
        names, _ = _header(path)
        data = read_range(path, piece.first, piece.last)
        bad: dict[int, str] = {}
        wanted = package("pyarrow").schema([schema.field(name) for name in columns])
        try:
            table = _parsed(data, path, names, wanted)
        except package("pyarrow").ArrowInvalid:
            table, bad = table_of_rows(_checked(_records(data, path), names), wanted)
        for at in range(0, table.num_rows, window_rows):
            inside = {row - at: why for row, why in bad.items() if at <= row < at + window_rows}
            yield Window(table.slice(at, window_rows), inside)


def _delimiter(path: Path) -> str:
    return "\t" if path.suffix.lower() == ".tsv" else ","


def _header(path: Path) -> tuple[list[str], int]:
    """The names, and the place of the first record. The names may not hold line ends."""
    with path.open("rb") as file:
        line = file.readline()
    text = line.decode("utf-8-sig").rstrip("\r\n")
    names: list[str] = next(csv.reader([text], delimiter=_delimiter(path))) if text else []
    if len(set(names)) != len(names):
        raise InputError("SM-BATCH-003", f"{path} names a column twice: {', '.join(names)}")
    return names, len(line)


def _parsed(data: bytes, path: Path, names: list[str], schema: Any, delimiter: str = "") -> Any:
    reader = package("pyarrow.csv")
    convert = reader.ConvertOptions(
        column_types=schema, include_columns=schema.names if schema is not None else None, strings_can_be_null=False
    )
    return reader.read_csv(
        io.BytesIO(data),
        read_options=reader.ReadOptions(column_names=names, use_threads=False, block_size=max(1, len(data))),
        parse_options=reader.ParseOptions(delimiter=delimiter or _delimiter(path), newlines_in_values=True),
        convert_options=convert,
    )


def _records(data: bytes, path: Path) -> list[list[str]]:
    text = data.decode("utf-8", errors="replace")
    return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(path)) if row]


def _written(records: list[list[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(records)
    return text.getvalue().encode()


def _checked(records: list[list[str]], names: list[str]) -> Iterator[dict[str, Any] | str]:
    for row in records:
        if len(row) == len(names):
            yield dict(zip(names, row, strict=True))
        else:
            yield f"{len(row)} fields, the header has {len(names)}"
