"""What a pass is and what it says about its work.

Input: a model. Output: an Outcome. Invariant: a pass changes the model in place, never its inputs' and outputs' names,
types or order, and never what it computes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

import onnx_ir as ir


@dataclass(frozen=True)
class Outcome:
    """How often a pass did what, for reports; empty when it changed nothing. `seconds` are set by who ran it."""

    changes: Counter[str] = field(default_factory=Counter[str])
    seconds: float = 0.0

    @property
    def modified(self) -> bool:
        return self.changes.total() > 0

    def __str__(self) -> str:
        return ", ".join(f"{what} x{count}" for what, count in sorted(self.changes.items()) if count) or "nothing"


class Pass(Protocol):
    """Model -> Model in place."""

    def __call__(self, model: ir.Model) -> Outcome: ...
