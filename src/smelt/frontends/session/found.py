"""What a session asks the compiler for, and what it gets.

Input: nothing. Output: the records. Invariant: importing them loads nothing else of smelt: the hook lies in every
process that imports onnxruntime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

BACKGROUND_LIMIT_S: Final = 1800.0


@dataclass(frozen=True)
class Wanted:
    """How a model is compiled. `limit_s` is how long a session waits for it; 0: it is compiled in the background."""

    limit_s: float = 30.0
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Found:
    """An artifact folder, or why there is none. `compiled`: it was made for this call."""

    folder: Path | None
    reason: str = ""
    compiled: bool = False
    seconds: float = 0.0
