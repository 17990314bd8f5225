"""Ranges in torch's profiler: `smelt.export`, `smelt.compile`, `smelt.run`.

Input: a name. Output: a context, or a function whose calls are ranges. Invariant: a call costs a comparison more while
no profiler runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.autograd import profiler

Call = Callable[[Sequence[Any]], Sequence[Any]]


def range_of(name: str) -> Any:
    """A context: `with range_of("smelt.export"):`."""
    return profiler.record_function(name)


def ranged(call: Call, name: str) -> Call:
    """The call, which a running profiler sees as a range of its own."""

    def run(args: Sequence[Any]) -> Sequence[Any]:
        if not profiler._is_profiler_enabled:  # pyright: ignore[reportPrivateUsage]
            return call(args)
        with profiler.record_function(name):
            return call(args)

    return run
