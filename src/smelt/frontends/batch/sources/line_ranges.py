"""Text files -> ranges of bytes that hold whole records.

Input: a file of lines. Output: pieces as byte ranges, with the number of records in each. Invariant: no range begins
or ends inside a record; with `quoted`, a line end between double quotes belongs to its record (a doubled quote counts
twice, so the parity is right).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from smelt.frontends.batch.sources.pieces import Piece

_PIECE_BYTES: Final = 8 << 20
_CHUNK_BYTES: Final = 8 << 20
_NEWLINE, _RETURN, _QUOTE = 10, 13, 34


def line_pieces(path: Path, start: int, *, quoted: bool) -> tuple[Piece, ...]:
    """Pieces of about 8 MB from byte `start` on. Empty lines are no records."""
    pieces: list[Piece] = []
    first = start
    rows = 0
    end = start
    for chunk_ends in _record_ends(path, start, quoted):
        for end, filled in chunk_ends:
            rows += filled
            if end - first >= _PIECE_BYTES:
                pieces.append(Piece(first, end, rows))
                first, rows = end, 0
    if rows:
        pieces.append(Piece(first, end, rows))
    return tuple(piece for piece in pieces if piece.rows)


def _record_ends(path: Path, start: int, quoted: bool) -> Any:
    """Lists of (end of some records, number of records), one list for each chunk that is read."""
    inside = 0
    size = path.stat().st_size
    last_end = start
    with path.open("rb") as file:
        file.seek(start)
        at = start
        while chunk := file.read(_CHUNK_BYTES):
            data = np.frombuffer(chunk, np.uint8)
            ends = np.flatnonzero(data == _NEWLINE)
            if quoted:
                parity = (np.cumsum(data == _QUOTE) + inside) & 1
                inside = int(parity[-1]) if data.size else inside
                ends = ends[parity[ends] == 0]
            places = ends + at + 1
            if at + data.size == size and (not places.size or places[-1] != size):
                places = np.append(places, size)  # the last line has no end
            yield _counted(data, at, places, last_end)
            last_end = int(places[-1]) if places.size else last_end
            at += data.size


def _counted(data: npt.NDArray[np.uint8], at: int, places: npt.NDArray[Any], last_end: int) -> list[tuple[int, int]]:
    """The chunk's last record end, with how many records are not empty before it."""
    if not places.size:
        return []
    lengths = np.diff(places, prepend=last_end)
    # "\n" alone, or "\r\n": an empty line.
    before = np.clip(places - at - 2, 0, data.size - 1)
    empty = (lengths <= 1) & (data[np.clip(places - at - 1, 0, data.size - 1)] == _NEWLINE)
    empty |= (lengths == 2) & (data[before] == _RETURN) & (data[np.clip(places - at - 1, 0, data.size - 1)] == _NEWLINE)
    return [(int(places[-1]), int(places.size - np.count_nonzero(empty)))]


def read_range(path: Path, first: int, last: int) -> bytes:
    with path.open("rb") as file:
        file.seek(first)
        return file.read(last - first)
