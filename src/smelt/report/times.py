"""Profiles -> Times: where a run's time goes, by region and by node.

Input: the nodes that ONNX Runtime timed in the artifact and in the stock model. Output: `Times`. Invariant: every
timed node of the artifact is counted once; medians are of one run, in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from smelt.report.readable import readable

_IN_CACHE_BYTES = 4 << 20


class TimedNode(Protocol):
    """What is read of `runtime.NodeTime`."""

    @property
    def name(self) -> str: ...
    @property
    def op_type(self) -> str: ...
    @property
    def median_us(self) -> float: ...


@dataclass(frozen=True)
class Peaks:
    """What this machine was seen to reach: arithmetic, and traffic with memory and with the caches."""

    gflops: float
    gbytes: float
    cached_gbytes: float

    def bound_us(self, flops: float, moved_bytes: float) -> float:
        """The least time that so much work can take; little data is taken to lie in a cache."""
        gbytes = self.cached_gbytes if moved_bytes <= _IN_CACHE_BYTES else self.gbytes
        return max(flops / (self.gflops * 1e3), moved_bytes / (gbytes * 1e3))


@dataclass(frozen=True)
class Launch:
    """Kernels that run together: microseconds in one run of the model, and the least that they could take."""

    time_us: float
    bound_us: float | None = 0.0

    def with_bound(self, more_us: float | None) -> Launch:
        known = self.bound_us is not None and more_us is not None
        return Launch(self.time_us, (self.bound_us or 0.0) + (more_us or 0.0) if known else None)


@dataclass(frozen=True)
class Times:
    """`regions` by index; `fallbacks` are (op, name, us) of nodes that ONNX Runtime ran; `stock` is the stock model, by
    op.

    `whole_us` and `stock_us` are wall times without the profiler. `bounds` are the least times by the roofline.
    `launches` are those of each code, for all of its regions together.
    """

    regions: Mapping[int, float]
    fallbacks: tuple[tuple[str, str, float], ...]
    stock: Mapping[str, float] = field(default_factory=dict[str, float])
    whole_us: float | None = None
    stock_us: float | None = None
    bounds: Mapping[int, float] = field(default_factory=dict[int, float])
    peaks: Peaks | None = None
    launches: Mapping[str, tuple[Launch, ...]] = field(default_factory=dict[str, tuple[Launch, ...]])
    shapes: str = ""
    threads: int = 0

    @property
    def kernel_us(self) -> float:
        return sum(self.regions.values())

    @property
    def fallback_us(self) -> float:
        return sum(us for _, _, us in self.fallbacks)

    @property
    def kernel_share(self) -> float | None:
        whole = self.kernel_us + self.fallback_us
        return self.kernel_us / whole if whole else None

    @property
    def speedup(self) -> float | None:
        return self.stock_us / self.whole_us if self.whole_us and self.stock_us else None


def divide(
    timed: Iterable[TimedNode], region_of: Mapping[str, int]
) -> tuple[dict[int, float], tuple[tuple[str, str, float], ...]]:
    """Times of regions, by index, and of the rest. `region_of` maps names of custom-op nodes to regions."""
    regions: dict[int, float] = {}
    left: list[tuple[str, str, float]] = []
    for node in timed:
        region = region_of.get(node.name)
        if region is None:
            left.append((readable(node.op_type), readable(node.name), node.median_us))
        else:
            regions[region] = regions.get(region, 0.0) + node.median_us
    return regions, tuple(sorted(left, key=lambda item: -item[2]))


def by_op(timed: Iterable[TimedNode]) -> dict[str, float]:
    """Microseconds by op type, the longest first."""
    total: dict[str, float] = {}
    for node in timed:
        op = readable(node.op_type)
        total[op] = total.get(op, 0.0) + node.median_us
    return dict(sorted(total.items(), key=lambda item: -item[1]))
