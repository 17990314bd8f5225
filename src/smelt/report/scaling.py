"""How a model's time would fall with more threads, from the tasks of one run.

Input: traces of a run with work cut for each number of threads, what a parallel loop and memory cost. Output:
`Scaling`. Invariant: nothing is measured here; every number follows from the traces by the rules of docs/scaling.md.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from smelt.report.readable import counted, in_time
from smelt.report.tables import table

IN_CACHE_BYTES: Final = 4 << 20  # bytes of a launch up to which they are taken to lie in a cache
ENOUGH: Final = 0.8  # efficiency below which a launch is said to be held back
_MAX_ROWS: Final = 16
CAUSES: Final[tuple[str, ...]] = ("serial", "few tasks", "smaller tasks", "other caches", "barriers", "memory")
OUTSIDE: Final[str] = "ONNX Runtime"

Place = tuple[str, int]


class TracedLaunch(Protocol):
    """What is read of `runtime.TracedLaunch`."""

    @property
    def entry(self) -> str: ...
    @property
    def place(self) -> int: ...
    @property
    def serial_us(self) -> float: ...
    @property
    def loops(self) -> Sequence[Sequence[float]]: ...


class Trace(Protocol):
    """What is read of `runtime.Trace`."""

    @property
    def launches(self) -> Sequence[TracedLaunch]: ...
    @property
    def outside_us(self) -> float: ...


@dataclass(frozen=True)
class Costs:
    """A parallel loop without work, by numbers of threads that were measured; what one thread reads from memory, and
    all together at most."""

    barriers_us: Mapping[int, float]
    read_gbytes: float
    most_gbytes: float

    def barrier_us(self, threads: int) -> float:
        """As measured; beyond, it grows with the logarithm of the threads."""
        if threads <= 1 or not self.barriers_us:
            return 0.0
        known = max((n for n in self.barriers_us if 1 < n <= threads), default=min(self.barriers_us))
        return self.barriers_us[known] * max(1.0, math.log2(threads) / math.log2(known))

    def memory_us(self, moved_bytes: float, threads: int) -> float:
        """The least time that threads take to move so much; little is taken to lie in a cache."""
        if moved_bytes <= IN_CACHE_BYTES:
            return 0.0
        return moved_bytes / (min(self.read_gbytes * threads, self.most_gbytes) * 1e3)


@dataclass
class Share:
    """Launches of one kind with one number of threads: their time, and what it is beyond an equal share, by cause."""

    time_us: float = 0.0
    work_us: float = 0.0
    tasks: int = 0
    lost_us: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0.0))


@dataclass(frozen=True)
class LaunchRow:
    """Launches of the same kernels, one after the other in step with `Scaling.threads`."""

    name: str
    kind: str
    launches: int
    shares: tuple[Share, ...]
    efficiency: tuple[float, ...]
    held_back: str


@dataclass(frozen=True)
class Scaling:
    """All launches and the whole model, with each number of threads. `measured_us` are wall times of runs, where the
    machine has as many processors; `outside_us` passes in ONNX Runtime itself. `lost` are shares of the predicted time
    by cause: what they sum up to is the most that efficiency can gain."""

    threads: tuple[int, ...]
    rows: tuple[LaunchRow, ...]
    predicted_us: tuple[float, ...]
    efficiency: tuple[float, ...]
    measured_us: tuple[float | None, ...]
    outside_us: float
    barriers_us: tuple[float, ...]
    costs: Costs
    shapes: str = ""
    lost: tuple[Mapping[str, float], ...] = ()

    @property
    def off(self) -> tuple[float | None, ...]:
        """How far predictions are from measurements, as a share of these."""
        pairs = zip(self.predicted_us, self.measured_us, strict=True)
        return tuple(made / found - 1 if found else None for made, found in pairs)


def makespan(tasks: Sequence[float], threads: int) -> float:
    """When the last thread is done, where each takes the next task as soon as it is free."""
    if threads <= 1:
        return sum(tasks)
    busy = [0.0] * min(threads, max(len(tasks), 1))
    for cost in tasks:
        heapq.heapreplace(busy, busy[0] + cost)
    return max(busy)


def scaling_of(
    traces: Mapping[int, Trace],
    names: Mapping[Place, tuple[str, str]],
    moved: Mapping[Place, float],
    costs: Costs,
    measured_us: Mapping[int, float],
    shapes: str = "",
) -> Scaling:
    """`traces` by numbers of threads, 1 among them; `names` and kinds of launches; `moved` bytes where known."""
    shares = {threads: _shares(trace, threads, names, moved, costs) for threads, trace in traces.items()}
    for threads, found in shares.items():
        for name, share in found.items() if threads > 1 else ():
            _explain_growth(share, threads, shares[1].get(name, share), shares.get(2, {}).get(name))
    counts = tuple(sorted(traces))
    whole = [sum(s.time_us for s in shares[n].values()) + traces[n].outside_us for n in counts]
    rows = [_row(name, counts, shares, traces[1], names) for name in shares[1]]
    return Scaling(
        counts,
        tuple(sorted(rows, key=lambda row: -row.shares[0].time_us)),
        tuple(whole),
        tuple(whole[0] / (n * us) for n, us in zip(counts, whole, strict=True)),
        tuple(measured_us.get(n) for n in counts),
        traces[1].outside_us,
        tuple(costs.barrier_us(n) for n in counts),
        costs,
        shapes,
        tuple(_lost(shares[n].values(), traces[n].outside_us, us, n) for n, us in zip(counts, whole, strict=True)),
    )


def _lost(shares: Iterable[Share], outside_us: float, whole_us: float, threads: int) -> dict[str, float]:
    """By cause, as shares of the time of the whole model."""
    found: dict[str, float] = dict.fromkeys((*CAUSES, OUTSIDE), 0.0)
    if threads <= 1 or whole_us <= 0:
        return found
    for share in shares:
        for cause, us in share.lost_us.items():
            found[cause] += us / whole_us
    return found | {OUTSIDE: outside_us * (1 - 1 / threads) / whole_us}


def _explain_growth(share: Share, threads: int, alone: Share, pair: Share | None) -> None:
    """Two threads have the cut of one: what their tasks take longer is the way from another core's cache."""
    fetched = max(0.0, pair.work_us - alone.work_us) if pair is not None else 0.0
    share.lost_us["other caches"] += fetched / threads
    share.lost_us["smaller tasks"] += max(0.0, share.work_us - alone.work_us - fetched) / threads


def _shares(
    trace: Trace, threads: int, names: Mapping[Place, tuple[str, str]], moved: Mapping[Place, float], costs: Costs
) -> dict[str, Share]:
    shares: dict[str, Share] = {}
    for launch in trace.launches:
        place = (launch.entry, launch.place)
        share = shares.setdefault(names.get(place, (f"{place[0]}:{place[1]}", ""))[0], Share())
        _add(share, launch, threads, moved.get(place, 0.0), costs)
    return shares


def _add(share: Share, launch: TracedLaunch, threads: int, moved_bytes: float, costs: Costs) -> None:
    """Its serial part, its loops or memory, whichever takes longer, and a barrier for each loop."""
    work = sum(map(sum, launch.loops))
    spans = sum(makespan(loop, threads) for loop in launch.loops)
    waits = costs.barrier_us(threads) * len(launch.loops)
    memory = max(0.0, costs.memory_us(moved_bytes, threads) - spans) if threads > 1 else 0.0
    share.time_us += launch.serial_us + spans + memory + waits
    share.work_us += launch.serial_us + work
    share.tasks += sum(map(len, launch.loops))
    lost = {"serial": launch.serial_us * (1 - 1 / threads), "few tasks": spans - work / threads}
    for cause, us in {**lost, "barriers": waits, "memory": memory}.items():
        share.lost_us[cause] += us


def _row(
    name: str, counts: Sequence[int], shares: Mapping[int, Mapping[str, Share]], first: Trace,
    names: Mapping[Place, tuple[str, str]],
) -> LaunchRow:  # fmt: skip
    alike = [one for one in first.launches if names.get((one.entry, one.place), ("", ""))[0] == name]
    kind = names[(alike[0].entry, alike[0].place)][1] if alike else ""
    found = tuple(shares[n].get(name, Share()) for n in counts)
    alone = found[0].time_us
    efficiency = tuple(alone / (n * s.time_us) if s.time_us else 1.0 for n, s in zip(counts, found, strict=True))
    return LaunchRow(name, kind, len(alike), found, efficiency, _held_back(counts, found, efficiency))


def _held_back(counts: Sequence[int], shares: Sequence[Share], efficiency: Sequence[float]) -> str:
    """By what, from the first number of threads on that a launch does not use well."""
    for threads, share, reached in zip(counts, shares, efficiency, strict=True):
        if reached < ENOUGH:
            cause = max(share.lost_us, key=lambda one: share.lost_us[one])
            return f"{cause} from {threads} threads"
    return ""


def scaling_lines(scaling: Scaling | None, limit: int = _MAX_ROWS) -> list[str]:
    """The model by numbers of threads, then its launches, the longest first."""
    if scaling is None:
        return []
    at = f" at {scaling.shapes}" if scaling.shapes else ""
    rest = len(scaling.rows) - limit
    return [
        f"scaling{at}, predicted from the tasks of one run:",
        *table(
            ("threads", "predicted", "speedup", "efficiency", "measured", "off by", "a barrier"), _model_rows(scaling)
        ),
        *_lost_lines(scaling),
        *table(_header(scaling), [_launch_cells(row, scaling) for row in scaling.rows[:limit]]),
        *([f"  … {counted(rest, 'launch', 'launches')} more"] if rest > 0 else []),
        f"  {assumptions(scaling)}",
    ]


def _lost_lines(scaling: Scaling) -> list[str]:
    """Where the time of all threads goes that efficiency lacks, with more than one thread."""
    many = [(n, lost) for n, lost in zip(scaling.threads, scaling.lost, strict=True) if n > 1]
    causes = [cause for cause in (*CAUSES, OUTSIDE) if any(lost[cause] >= 0.005 for _, lost in many)]
    if not causes:
        return []
    rows = [(str(n), *(f"{lost[cause]:.0%}" for cause in causes)) for n, lost in many]
    return ["lost, of the predicted time:", *table(("threads", *causes), rows)]


def assumptions(scaling: Scaling) -> str:
    """What predictions rest on beside the traces."""
    costs = scaling.costs
    known = ", ".join(f"{in_time(us)} with {n} threads" for n, us in sorted(costs.barriers_us.items()))
    barrier = f"an empty parallel loop takes {known} and grows with log2(threads); " if known else ""
    memory = f"one thread reads {costs.read_gbytes:.0f} GB/s from memory, all together at most {costs.most_gbytes:.0f}"
    return f"{barrier}{memory}; {in_time(scaling.outside_us)} of a run are ONNX Runtime's own and do not scale"


def _model_rows(scaling: Scaling) -> list[tuple[str, ...]]:
    columns = zip(
        scaling.threads, scaling.predicted_us, scaling.efficiency, scaling.measured_us, scaling.off,
        scaling.barriers_us, strict=True,
    )  # fmt: skip
    return [
        (str(n), in_time(us), f"{n * reached:.2f}x", f"{reached:.0%}", in_time(found) if found else "-",
         f"{off:+.1%}" if off is not None else "-", in_time(barrier))
        for n, us, reached, found, off, barrier in columns
    ]  # fmt: skip


def _header(scaling: Scaling) -> tuple[str, ...]:
    return ("launch", "kind", "launches", "time", *(f"{n} thr." for n in scaling.threads[1:]), "tasks", "held back by")


def _launch_cells(row: LaunchRow, scaling: Scaling) -> tuple[str, ...]:
    """Tasks of all loops of one launch, with the most threads."""
    alone, tasks = row.shares[0].time_us, row.shares[-1].tasks / max(row.launches, 1)
    reached = [f"{one:.0%}" for one in row.efficiency[1 : len(scaling.threads)]]
    return (row.name, row.kind, str(row.launches), in_time(alone), *reached, f"{tasks:.0f}", row.held_back or "-")
