"""The clocks of a library that was built for profiling (`profile.h`).

Input: such a library, and how many launches each of its regions has. Output: ticks of each launch since the last reset.
Invariant: nothing but the library's own tables is read or written.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_CALIBRATION_S: Final = 0.05


class LaunchClocks:
    """The tables that the library exports, one for each region and level."""

    def __init__(self, library: Path, levels: Sequence[str], launches: Mapping[str, int]) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.smelt_profile_clock.restype = ctypes.c_int64
        self._tables = {
            entry: [(ctypes.c_int64 * count).in_dll(self._library, f"{entry}_ticks_{level}") for level in levels]
            for entry, count in launches.items()
        }

    def places(self) -> dict[int, tuple[str, int]]:
        """The entry and the place of each launch, by the address of its clock."""
        size = ctypes.sizeof(ctypes.c_int64)
        return {
            ctypes.addressof(table) + size * place: (entry, place)
            for entry, tables in self._tables.items()
            for table in tables
            for place in range(len(table))
        }

    def reset(self) -> None:
        for tables in self._tables.values():
            for table in tables:
                ctypes.memset(table, 0, ctypes.sizeof(table))

    def read(self) -> dict[str, list[float]]:
        """Ticks since the last reset; only one level has run."""
        return {
            entry: [float(sum(ticks)) for ticks in zip(*tables, strict=True)] for entry, tables in self._tables.items()
        }

    def ticks_per_us(self) -> float:
        before, started = self._library.smelt_profile_clock(), time.perf_counter()
        time.sleep(_CALIBRATION_S)
        return (self._library.smelt_profile_clock() - before) / ((time.perf_counter() - started) * 1e6)
