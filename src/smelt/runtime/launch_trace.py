"""One run of a model, task by task: the trace of a library that was built for profiling (`ort_profile.h`).

Input: such a library, and a function that runs its model. Output: `Trace`: for each launch, its serial part and the
costs of the tasks of its parallel loops, with work cut for a given number of threads. Invariant: tasks run one after
the other, so a task's cost is its own; afterwards the library knows its own machine again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from .launch_clocks import LaunchClocks

Array = np.ndarray[Any, Any]
_ROOM: Final = 1 << 16
_REGION, _FORK, _TASK, _JOIN = 1, 2, 3, 4
_WARMUP: Final = 1
_UNDISTURBED: Final = 0.1


@dataclass
class TracedLaunch:
    """One launch of one call of a region, in microseconds: outside of parallel loops, and each task of each loop."""

    entry: str
    place: int
    serial_us: float = 0.0
    loops: list[list[float]] = field(default_factory=list[list[float]])


@dataclass(frozen=True)
class Trace:
    """All launches of one run in order, and what passes outside of regions."""

    threads: int
    launches: tuple[TracedLaunch, ...]
    outside_us: float


class LaunchTracer:
    """Runs that are traced."""

    def __init__(self, library: Path, levels: Sequence[str], launches: Mapping[str, int]) -> None:
        clocks = LaunchClocks(library, levels, launches)
        self._library: Any = ctypes.CDLL(str(library))
        self._library.smelt_profile_clock.restype = ctypes.c_int64
        self._library.smelt_profile_traced.restype = ctypes.c_int64
        self._places, self._per_us = clocks.places(), clocks.ticks_per_us()
        self._events = np.zeros((_ROOM, 2), np.int64)

    def trace(self, threads: int, run: Callable[[], object], runs: int, cores: int = 1) -> Trace:
        """The median of each interval over `runs` runs, which do the same things in the same order. So many cores
        share the tasks; the session has as many threads."""
        try:
            taken = [self._once(threads, cores, run) for _ in range(_WARMUP + runs)][_WARMUP:]
        finally:
            self._library.smelt_profile_trace(*map(ctypes.c_int64, (0, 1)), None, ctypes.c_int64(0))
        what = taken[0][0]
        same = [spent for events, spent, _ in taken if np.array_equal(events, what)]
        spent = np.median(np.stack(same), axis=0) / self._per_us
        return self._parsed(threads, what, spent, float(np.median([outside for *_, outside in taken])) / self._per_us)

    def barrier_us(self, threads: int, run: Callable[[], object], loops: int = 400) -> float:
        """An empty loop in which each of `threads` threads takes part; the session has as many. Of many, one that other
        processes did not delay."""
        ticks = np.zeros(loops, np.int64)
        run()
        self._library.smelt_profile_barriers(ctypes.c_int64(threads), self._pointer(ticks), ctypes.c_int64(loops))
        run()
        return float(np.quantile(ticks, _UNDISTURBED)) / self._per_us

    def _once(self, threads: int, cores: int, run: Callable[[], object]) -> tuple[Array, Array, float]:
        """What happened, the ticks of each event (of a task, or since the one before), and ticks outside of regions."""
        while True:
            room, wanted = ctypes.c_int64(len(self._events)), map(ctypes.c_int64, (threads, cores))
            self._library.smelt_profile_trace(*wanted, self._pointer(self._events), room)
            before = self._library.smelt_profile_clock()
            run()
            whole = self._library.smelt_profile_clock() - before
            used = int(self._library.smelt_profile_traced())
            if used <= len(self._events):
                break
            self._events = np.zeros((2 * used, 2), np.int64)
        what, spent = self._events[:used, 0].copy(), self._events[:used, 1].copy()
        marks = what != _TASK
        spent[marks] = np.diff(spent[marks], prepend=spent[:1])
        inside = float(spent[marks & (what != _REGION)].sum())
        spent[(what == _REGION) | (what == _JOIN)] = 0
        return what, spent, float(whole) - inside

    def _parsed(self, threads: int, what: Array, spent: Array, outside_us: float) -> Trace:
        launches: list[TracedLaunch] = []
        serial, loops = 0.0, list[list[float]]()
        for event, us in zip(what.tolist(), spent.tolist(), strict=True):
            if event == _TASK:
                loops[-1].append(us)
                continue
            serial += us
            if event == _FORK:
                loops.append([])
            elif event not in (_REGION, _JOIN):
                launches.append(TracedLaunch(*self._places[event], serial, loops))
                serial, loops = 0.0, []
        return Trace(threads, tuple(launches), outside_us)

    @staticmethod
    def _pointer(array: Array) -> ctypes.c_void_p:
        return ctypes.c_void_p(array.ctypes.data)
