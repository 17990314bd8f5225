"""How much of the machine others used while something was timed.

Input: a call. Output: its seconds, and the share of all CPUs that processes outside of this one's family took.
Invariant: the share is known before anybody looks at the times, so that rounds are chosen by it alone.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

QUIET = 0.05


def _busy_s() -> float:
    """Of all CPUs since the start of the machine."""
    fields = [int(field) for field in Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    """Of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def watched(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call gives, and others' share of the CPUs. Processes that it starts must have ended."""
    busy, own, started = _busy_s(), _own_s(), time.perf_counter()
    made = call()
    seconds = time.perf_counter() - started
    others = (_busy_s() - busy) - (_own_s() - own)
    return made, max(0.0, others) / (seconds * (os.cpu_count() or 1))
