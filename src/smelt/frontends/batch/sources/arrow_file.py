"""Arrow IPC files (Feather) and streams (Hugging Face data sets on disk): some record batches are a piece.

Input: a path. Output: facts, windows. Invariant: the file is mapped, not read; a piece takes the pages that it needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from smelt.frontends.batch.packages import package
from smelt.frontends.batch.sources.pieces import Facts, Piece, Window, piece_rows

_MAGIC: Final = b"ARROW1"


class ArrowFormat:
    def inspect(self, path: Path) -> Facts:
        rows: list[int] = []
        size = 0
        for batch in _batches(path):
            rows.append(batch.num_rows)
            size += batch.nbytes
        row_bytes = size / max(1, sum(rows))
        return Facts(_schema(path), _grouped(rows, piece_rows(row_bytes)), row_bytes)

    def read(self, path: Path, piece: Piece, schema: Any, columns: Sequence[str], window_rows: int) -> Iterator[Window]:
        del schema
        pa = package("pyarrow")
        chosen = [batch.select(list(columns)) for batch in _batches(path, piece.first, piece.last)]
        table = pa.Table.from_batches(chosen)
        for at in range(0, table.num_rows, window_rows):
            yield Window(table.slice(at, window_rows))


def _grouped(rows: list[int], enough: int) -> tuple[Piece, ...]:
    """Small record batches are taken together."""
    pieces: list[Piece] = []
    first = held = 0
    for index, count in enumerate(rows):
        held += count
        if held >= enough or (index + 1 == len(rows) and held):
            pieces.append(Piece(first, index + 1, held))
            first, held = index + 1, 0
    return tuple(pieces)


def _is_file(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _schema(path: Path) -> Any:
    ipc = package("pyarrow.ipc")
    with package("pyarrow").memory_map(str(path)) as mapped:
        return (ipc.open_file(mapped) if _is_file(path) else ipc.open_stream(mapped)).schema


def _batches(path: Path, first: int = 0, last: int | None = None) -> Iterator[Any]:
    ipc = package("pyarrow.ipc")
    with package("pyarrow").memory_map(str(path)) as mapped:
        if _is_file(path):
            file = ipc.open_file(mapped)
            end = file.num_record_batches if last is None else last
            for index in range(first, end):
                yield file.get_batch(index)
            return
        stream = ipc.open_stream(mapped)
        for index, batch in enumerate(stream):
            if last is not None and index >= last:
                return
            if index >= first:
                yield batch
