"""What a session asks the compiler for, and what it gets.

Input: nothing. Output: the records. Invariant: importing them loads nothing else of smelt: the hook lies in every
process that imports onnxruntime.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from smelt.base.environment import HOOK_LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path

BACKGROUND_LIMIT_S: Final = 1800.0
_NOTHING: Final[Mapping[str, Any]] = {}


class Wanted(NamedTuple):
    """How a model is compiled. `limit_s` is how long a session waits for it; 0: it is compiled in the background."""

    limit_s: float = HOOK_LIMIT_S
    options: Mapping[str, Any] = _NOTHING


class Found(NamedTuple):
    """An artifact folder, or why there is none. `compiled`: it was made for this call."""

    folder: Path | None
    reason: str = ""
    compiled: bool = False
    seconds: float = 0.0
    key: str = ""
