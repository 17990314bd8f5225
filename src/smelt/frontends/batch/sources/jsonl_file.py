"""JSON lines: a range of bytes is a piece.

Input: a path. Output: facts, windows. Invariant: a line that is no JSON object is a bad row of its window, and every
other row keeps its place. Types are inferred from the first piece, and hold for all.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from smelt.base.errors import InputError
from smelt.frontends.batch.packages import package
from smelt.frontends.batch.sources.line_ranges import line_pieces, read_range
from smelt.frontends.batch.sources.pieces import Facts, Piece, Window
from smelt.frontends.batch.sources.salvage import table_of_rows


class JsonlFormat:
    def inspect(self, path: Path) -> Facts:
        pa = package("pyarrow")
        pieces = line_pieces(path, 0, quoted=False)
        if not pieces:
            return Facts(pa.schema([]), ())
        data = read_range(path, pieces[0].first, pieces[0].last)
        try:
            schema = _parsed(data, None).schema
        except pa.ArrowInvalid:
            schema = _schema_of_objects(path, list(_rows(data)))
        return Facts(schema, pieces, len(data) / pieces[0].rows)

    def read(self, path: Path, piece: Piece, schema: Any, columns: Sequence[str], window_rows: int) -> Iterator[Window]:
        data = read_range(path, piece.first, piece.last)
        bad: dict[int, str] = {}
        wanted = package("pyarrow").schema([schema.field(name) for name in columns])
        try:
            table = _parsed(data, wanted).select(list(columns))
        except (package("pyarrow").ArrowInvalid, KeyError):
            table, bad = table_of_rows(_rows(data), wanted)
        for at in range(0, table.num_rows, window_rows):
            inside = {row - at: why for row, why in bad.items() if at <= row < at + window_rows}
            yield Window(table.slice(at, window_rows), inside)


def _schema_of_objects(path: Path, rows: list[dict[str, Any] | str]) -> Any:
    """Of the lines that are objects, where others are not."""
    objects = [row for row in rows if isinstance(row, dict)]
    if rows and not objects:
        hint = "Write one object per line; a file that is one array is no JSON lines."
        raise InputError("SM-BATCH-003", f"{path}: no line is a JSON object, the first is {rows[0]}", hint=hint)
    return package("pyarrow").Table.from_pylist(objects).schema


def _parsed(data: bytes, schema: Any) -> Any:
    reader = package("pyarrow.json")
    unexpected = "ignore" if schema is not None else "infer"
    return reader.read_json(
        io.BytesIO(data),
        read_options=reader.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=reader.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
    )


def _rows(data: bytes) -> Iterator[dict[str, Any] | str]:
    for line in data.split(b"\n"):
        if not line.strip(b"\r"):
            continue
        try:
            row: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield f"no JSON: {str(error)[:100]}"
            continue
        yield row if isinstance(row, dict) else f"a JSON {type(row).__name__}, not an object"
