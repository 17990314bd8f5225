"""How many CPUs this process may use, and why.

Input: the scheduler's affinity and the CPU quota of the process's cgroups (v1 and v2). Output: `Cpus`. Invariant: at
least one; a limit that cannot be read is no limit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Cpus:
    """`count` of `present` CPUs. `quota`: how many the cgroup lets it use in the mean; None without a limit."""

    def __init__(self, count: int, present: int, allowed: int, quota: float | None) -> None:
        self.count = count
        self.present = present
        self.allowed = allowed
        self.quota = quota

    @property
    def limited(self) -> bool:
        """Whether a quota allows fewer than affinity does: what asks only for affinity starts too many threads."""
        return self.count < self.allowed

    @property
    def session_threads(self) -> int:
        """0, which leaves the number to ONNX Runtime, unless a cgroup allows fewer: it knows of affinity only."""
        return self.count if self.limited else 0

    @property
    def why(self) -> str:
        if self.limited:
            return f"the cgroup's quota is {self.quota:g} of {self.present} CPUs"
        return f"{self.allowed} of {self.present} CPUs by affinity" if self.allowed < self.present else "all CPUs"


@cache
def usable_cpus() -> Cpus:
    """As they are when the process first asks."""
    return find_cpus()


def find_cpus(root: Path | str = "/") -> Cpus:
    """`root` is where /proc and /sys lie."""
    present = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else present
    quota = min(_quotas(str(root)), default=None)
    # Threads of a pool spin while they wait: one more than the quota, and all are held up.
    count = allowed if quota is None else max(1, min(allowed, int(quota)))
    return Cpus(count, max(present, allowed), allowed, quota)


def _quotas(root: str) -> Iterator[float]:
    """CPUs that each cgroup above the process allows."""
    for place in _cgroups(root):
        with suppress(OSError, ValueError, ZeroDivisionError):
            if os.path.isfile(f"{place}/cpu.max"):
                quota, period = _text(f"{place}/cpu.max").split()
            else:
                quota = _text(f"{place}/cpu.cfs_quota_us").strip()
                period = _text(f"{place}/cpu.cfs_period_us").strip()
            if quota not in ("max", "-1"):
                yield int(quota) / int(period)


def _cgroups(root: str) -> Iterator[str]:
    """Folders of the cgroups that the process is in, up to the top, which a container sees as its own."""
    with suppress(OSError):
        for line in _text(f"{root}/proc/self/cgroup").splitlines():
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if number != "0" and "cpu" not in controllers.split(","):
                continue
            top = f"{root}/sys/fs/cgroup" if number == "0" else f"{root}/sys/fs/cgroup/cpu"
            parts = [part for part in path.split("/") if part not in ("", "..", ".")]
            for depth in range(len(parts), -1, -1):
                yield os.path.join(top, *parts[:depth])


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as stream:
        return stream.read()
