"""How many CPUs this process may use, and why.

Input: the scheduler's affinity and the CPU quota of the process's cgroups (v1 and v2). Output: `Cpus`. Invariant: at
least one; a limit that cannot be read is no limit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/")


@dataclass(frozen=True)
class Cpus:
    """`count` of `present` CPUs. `quota`: how many the cgroup lets it use in the mean; None without a limit."""

    count: int
    present: int
    allowed: int
    quota: float | None

    @property
    def limited(self) -> bool:
        """Whether a quota allows fewer than affinity does: what asks only for affinity starts too many threads."""
        return self.count < self.allowed

    @property
    def why(self) -> str:
        if self.limited:
            return f"the cgroup's quota is {self.quota:g} of {self.present} CPUs"
        return f"{self.allowed} of {self.present} CPUs by affinity" if self.allowed < self.present else "all CPUs"


@cache
def usable_cpus() -> Cpus:
    """As they are when the process first asks."""
    return find_cpus()


def find_cpus(root: Path = _ROOT) -> Cpus:
    """`root` is where /proc and /sys lie."""
    present = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else present
    quota = min(_quotas(root), default=None)
    # Threads of a pool spin while they wait: one more than the quota, and all are held up.
    count = allowed if quota is None else max(1, min(allowed, int(quota)))
    return Cpus(count, max(present, allowed), allowed, quota)


def _quotas(root: Path) -> Iterator[float]:
    """CPUs that each cgroup above the process allows."""
    for place in _cgroups(root):
        with suppress(OSError, ValueError, ZeroDivisionError):
            if (place / "cpu.max").is_file():
                quota, period = (place / "cpu.max").read_text(encoding="ascii").split()
            else:
                quota = (place / "cpu.cfs_quota_us").read_text(encoding="ascii").strip()
                period = (place / "cpu.cfs_period_us").read_text(encoding="ascii").strip()
            if quota not in ("max", "-1"):
                yield int(quota) / int(period)


def _cgroups(root: Path) -> Iterator[Path]:
    """Folders of the cgroups that the process is in, up to the top, which a container sees as its own."""
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines():
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if number != "0" and "cpu" not in controllers.split(","):
                continue
            top = root / "sys/fs/cgroup" / ("" if number == "0" else "cpu")
            parts = [part for part in path.split("/") if part not in ("", "..", ".")]
            for depth in range(len(parts), -1, -1):
                yield top.joinpath(*parts[:depth])
