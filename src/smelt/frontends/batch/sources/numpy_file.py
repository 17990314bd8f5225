"""npy and npz: some rows are a piece.

Input: a path. Output: facts, windows; the array of a .npy is the column `array`, those of a .npz have their names.
Invariant: nothing is unpickled; of a compressed .npz what lies before a piece is decompressed again, and not kept.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.lib import format as npy

from smelt.base.errors import InputError
from smelt.frontends.batch.arrays import to_arrow
from smelt.frontends.batch.packages import package
from smelt.frontends.batch.sources.pieces import Facts, Piece, Window, by_rows

COLUMN: Final = "array"


class NumpyFormat:
    def inspect(self, path: Path) -> Facts:
        pa = package("pyarrow")
        found = {name: _described(path, name) for name in _names(path)}
        counts = {name: shape[0] for name, (shape, _) in found.items()}
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise InputError("SM-BATCH-003", f"{path}: arrays of different lengths: {told}")
        fields = [(name, to_arrow(np.empty((0, *shape[1:]), dtype)).type) for name, (shape, dtype) in found.items()]
        row_bytes = float(sum(dtype.itemsize * int(np.prod(shape[1:])) for shape, dtype in found.values()))
        return Facts(pa.schema(fields), by_rows(next(iter(counts.values()), 0), row_bytes), row_bytes)

    def read(self, path: Path, piece: Piece, schema: Any, columns: Sequence[str], window_rows: int) -> Iterator[Window]:
        del schema
        pa = package("pyarrow")
        for at in range(piece.first, piece.last, window_rows):
            end = min(at + window_rows, piece.last)
            arrays = [to_arrow(_rows(path, name, at, end)) for name in columns]
            yield Window(pa.Table.from_arrays(arrays, names=list(columns)))


def _names(path: Path) -> list[str]:
    if path.suffix.lower() == ".npy":
        return [COLUMN]
    with zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


@contextmanager
def _opened(path: Path, name: str) -> Generator[IO[bytes]]:
    if path.suffix.lower() == ".npy":
        with path.open("rb") as file:
            yield file
        return
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
        yield file


def _header(file: IO[bytes], path: Path, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if dtype.hasobject or dtype.fields or not shape or (fortran and len(shape) > 1):
        what = "Fortran order" if fortran else "no rows" if not shape else f"dtype {dtype}"
        raise InputError("SM-BATCH-003", f"{path}: array {name!r} has {what}, which is not read by rows")
    return tuple(shape), dtype


def _described(path: Path, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    with _opened(path, name) as file:
        shape, dtype = _header(file, path, name)
        if path.suffix.lower() == ".npy":
            missing = file.tell() + int(np.prod(shape)) * dtype.itemsize - path.stat().st_size
            if missing > 0:
                raise InputError("SM-BATCH-003", f"{path} is truncated: {missing} bytes are missing")
        return shape, dtype


def _rows(path: Path, name: str, first: int, last: int) -> Any:
    with _opened(path, name) as file:
        shape, dtype = _header(file, path, name)
        row_bytes = int(np.prod(shape[1:])) * dtype.itemsize
        file.seek(first * row_bytes, io.SEEK_CUR)
        data = file.read((last - first) * row_bytes)
        return np.frombuffer(data, dtype).reshape(last - first, *shape[1:])
