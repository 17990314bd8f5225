"""What this process may use: CPUs and memory, as its cgroup and its affinity say.

Input: /proc and /sys/fs/cgroup. Output: numbers. Invariant: never more than the machine has; where nothing is said,
what the machine has.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")
_UNLIMITED: Final = 1 << 60


def usable_cpus(root: Path = _ROOT, own: Path = _OWN) -> int:
    """Whole CPUs: a quota of 1.5 is one, so that no thread waits for another's slice."""
    seen = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [seen, *(_quota(folder) for folder in _folders(root, own, "cpu"))]
    return max(1, int(min(quotas)))


def usable_memory_bytes(root: Path = _ROOT, own: Path = _OWN) -> int:
    """What is free now, at most what the cgroup leaves."""
    free = [_free_bytes()]
    for folder in _folders(root, own, "memory"):
        limit = _number(folder / "memory.max") or _number(folder / "memory.limit_in_bytes")
        used = _number(folder / "memory.current") or _number(folder / "memory.usage_in_bytes") or 0
        if limit and limit < _UNLIMITED:
            free.append(max(0, limit - used + _cached_bytes(folder)))
    return min(free)


def _folders(root: Path, own: Path, controller: str) -> Iterator[Path]:
    """The cgroup of this process and those above it, of version 2 and of version 1."""
    with suppress(OSError):
        for line in own.read_text(encoding="utf-8").splitlines():
            number, controllers, path = line.split(":", 2)
            if number != "0" and controller not in controllers.split(","):
                continue
            base = root if number == "0" else root / controller
            here = base / path.lstrip("/")
            while True:
                yield here
                if here == base or base not in here.parents:
                    break
                here = here.parent


def _quota(folder: Path) -> float:
    with suppress(OSError, ValueError):
        quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
        return _UNLIMITED if quota == "max" else int(quota) / int(period)
    quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return quota / period if quota and quota > 0 and period else _UNLIMITED


def _number(path: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii"))
    return None


def _cached_bytes(folder: Path) -> int:
    """File pages are counted as used, but go when memory is needed."""
    with suppress(OSError, ValueError):
        for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(" ")
            if name in {"inactive_file", "total_inactive_file"}:
                return int(value)
    return 0


def _free_bytes() -> int:
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return _UNLIMITED


def peak_memory_bytes() -> int:
    """The most that this process ever held."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
