"""Parquet: a row group is a piece.

Input: a path. Output: facts from its footer, windows of a row group. Invariant: pages are decoded as a window needs
them, so that a row group of any size takes a window's memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from smelt.frontends.batch.packages import package
from smelt.frontends.batch.sources.pieces import Facts, Piece, Window

_BUFFER_BYTES: Final = 1 << 20


class ParquetFormat:
    def inspect(self, path: Path) -> Facts:
        with package("pyarrow.parquet").ParquetFile(path) as file:
            found = file.metadata
            groups = [found.row_group(index) for index in range(found.num_row_groups)]
            pieces = [Piece(i, i + 1, group.num_rows) for i, group in enumerate(groups) if group.num_rows]
            bytes_in_all = sum(group.total_byte_size for group in groups)
            return Facts(file.schema_arrow, tuple(pieces), bytes_in_all / max(1, found.num_rows))

    def read(self, path: Path, piece: Piece, schema: Any, columns: Sequence[str], window_rows: int) -> Iterator[Window]:
        del schema
        pa = package("pyarrow")
        wanted = list(columns)
        with package("pyarrow.parquet").ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
            pending: list[Any] = []
            held = 0
            for batch in file.iter_batches(window_rows, row_groups=[piece.first], columns=wanted, use_threads=False):
                pending.append(batch.select(wanted))
                held += batch.num_rows
                if held >= window_rows:
                    table = pa.Table.from_batches(pending)
                    yield Window(table.slice(0, window_rows))
                    rest = table.slice(window_rows)
                    pending, held = rest.to_batches(), rest.num_rows
            if held:
                yield Window(pa.Table.from_batches(pending))
