"""Read the dynamic symbols of an ELF file.

Input: a 64-bit little-endian ELF file. Output: the names that it exports and those that it needs. Invariant: the
file is only read, never loaded, so that code for other machines can be checked as well.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_DYNSYM: Final = 11


@dataclass(frozen=True)
class Symbols:
    """Dynamic symbols by name, each set sorted."""

    exported: tuple[str, ...]
    needed: tuple[str, ...]


def read_symbols(path: Path) -> Symbols:
    """The dynamic symbols; ValueError where the file is no such ELF file."""
    data = path.read_bytes()
    try:
        return _read(data)
    except struct.error as error:
        raise ValueError(f"{path.name} is cut short") from error


def _read(data: bytes) -> Symbols:
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    header = _HEADER.unpack_from(data)
    offset, entry_bytes, count = header[6], header[11], header[12]
    sections = [_SECTION.unpack_from(data, offset + entry_bytes * index) for index in range(count)]
    exported: set[str] = set()
    needed: set[str] = set()
    for section in sections:
        if section[1] != _DYNSYM:
            continue
        names_at = int(sections[int(section[6])][4])
        for at in range(section[4] + _SYMBOL.size, section[4] + section[5], _SYMBOL.size):
            name_at, _, _, index, _, _ = _SYMBOL.unpack_from(data, at)
            start = names_at + int(name_at)
            name = data[start : data.index(b"\0", start)].decode()
            (exported if index else needed).add(name)
    return Symbols(tuple(sorted(exported)), tuple(sorted(needed)))
