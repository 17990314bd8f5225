"""One block of generated C: its lines, and the names that are valid inside it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Scope:
    """`values` names expressions by identity, `integers` names index expressions by key."""

    lines: list[str] = field(default_factory=list[str])
    values: dict[int, str] = field(default_factory=dict[int, str])
    integers: dict[str, str] = field(default_factory=dict[str, str])
