"""A folder of images: 256 files are a piece.

Input: a folder. Output: facts, windows of the columns `path` and `image` (the file's bytes, decoded later). Invariant:
images come in the order of their names; a file that cannot be read is a bad row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from smelt.frontends.batch.packages import package
from smelt.frontends.batch.sources.find import image_files
from smelt.frontends.batch.sources.pieces import Facts, Piece, Window

_PIECE_ROWS: Final = 256
_DECODED_BYTES: Final = 600_000.0


class ImageFormat:
    def inspect(self, path: Path) -> Facts:
        pa = package("pyarrow")
        count = len(image_files(path))
        ends = [(at, min(at + _PIECE_ROWS, count)) for at in range(0, count, _PIECE_ROWS)]
        schema = pa.schema([("path", pa.string()), ("image", pa.binary())])
        return Facts(schema, tuple(Piece(a, b, b - a) for a, b in ends), _DECODED_BYTES)

    def read(self, path: Path, piece: Piece, schema: Any, columns: Sequence[str], window_rows: int) -> Iterator[Window]:
        pa = package("pyarrow")
        files = image_files(path)[piece.first : piece.last]
        for at in range(0, len(files), window_rows):
            chosen = files[at : at + window_rows]
            bad: dict[int, str] = {}
            contents = [_content(file, place, bad) for place, file in enumerate(chosen)]
            names = [file.relative_to(path).as_posix() for file in chosen]
            every = {"path": pa.array(names, pa.string()), "image": pa.array(contents, pa.binary())}
            wanted = pa.schema([schema.field(name) for name in columns])
            yield Window(pa.Table.from_arrays([every[name] for name in columns], schema=wanted), bad)


def _content(file: Path, place: int, bad: dict[int, str]) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError as error:
        bad[place] = f"{file.name} cannot be read: {error.strerror}"
        return None
