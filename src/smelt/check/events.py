"""What the examining process tells.

Input: an event by its fields. Output: `Report`, who is told, and an error in few words. Invariant: events are plain
data.
"""

from __future__ import annotations

from typing import Any, Protocol


class Report(Protocol):
    def __call__(self, **event: Any) -> None: ...


def short(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
