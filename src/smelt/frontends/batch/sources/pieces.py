"""The contract of a format.

Input: nothing. Output: the records and the protocol that every format fulfils. Invariant: the pieces of a file, in
their order, are its rows in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

PIECE_ROWS: Final = 16384  # of formats that have no row groups of their own
WINDOW_BYTES: Final = 16 << 20
WINDOW_ROWS: Final = 16384


@dataclass(frozen=True)
class Piece:
    """Some consecutive rows, by which the format finds them again."""

    first: int
    last: int
    rows: int


@dataclass(frozen=True)
class Facts:
    """A file as it was found. `schema` is an Arrow schema; `row_bytes` is the size of a row in memory, about."""

    schema: Any
    pieces: tuple[Piece, ...]
    row_bytes: float = 64.0


@dataclass(frozen=True)
class Window:
    """Rows that are read at once. `bad`: rows that could not be read, by their place in the window."""

    table: Any
    bad: dict[int, str] = field(default_factory=dict[int, str])


class Format(Protocol):
    """One kind of file."""

    def inspect(self, path: Path) -> Facts: ...

    def read(
        self, path: Path, piece: Piece, schema: Any, columns: Sequence[str], window_rows: int
    ) -> Iterator[Window]: ...


def window_rows(row_bytes: float, batch: int) -> int:
    """As many whole batches as fit a window: many rows to sort by length, few megabytes."""
    fitting = min(WINDOW_ROWS, int(WINDOW_BYTES / max(1.0, row_bytes)))
    return max(1, fitting // batch) * batch


def piece_rows(row_bytes: float) -> int:
    """Of a piece, where the format does not say: few enough that wide rows make more than one part."""
    return max(1, min(PIECE_ROWS, int(4 * WINDOW_BYTES / max(1.0, row_bytes))))


def by_rows(rows: int, row_bytes: float) -> tuple[Piece, ...]:
    """Pieces of a file that can be cut anywhere."""
    size = piece_rows(row_bytes)
    return tuple(Piece(at, min(at + size, rows), min(size, rows - at)) for at in range(0, rows, size))


def windows_of(table: Any, size: int) -> Iterator[Window]:
    for at in range(0, table.num_rows, size):
        yield Window(table.slice(at, size))
