"""What ran where: a count for each op and reason.

Input: one note per call. Output: `fallbacks()` and `natives()`. Invariant: a call that raised is not counted; counting
costs one dictionary update.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True)
class Fallback:
    """An op that ran on the CPU instead of in ONNX Runtime."""

    op: str
    reason: str
    count: int

    def __str__(self) -> str:
        return f"{self.op}: {self.count} x, {self.reason}"


_fallen: Counter[tuple[str, str]] = Counter()
natives_by_op: Counter[str] = Counter()


def note_fallback(op: str, reason: str) -> None:
    _fallen[op, reason] += 1


def fallbacks() -> list[Fallback]:
    """Calls that the CPU computed, most frequent first."""
    return [Fallback(op, reason, count) for (op, reason), count in _fallen.most_common()]


def natives() -> dict[str, int]:
    """Calls that ONNX Runtime computed, by op."""
    return dict(natives_by_op.most_common())


def reset_counts() -> None:
    _fallen.clear()
    natives_by_op.clear()
