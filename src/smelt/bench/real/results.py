"""What is known of each real model, one file for each.

Input: a folder and what results depend on. Output: `Known`, read and written. Invariant: a step's result is used again
only when smelt's sources and the machine are the same, or when any result will do; a file is whole after each step.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, cast

Step = Literal["compile", "verify", "right", "time"]
Facts = dict[str, Any]
NOT_SLOWER: Final = 0.98  # of stock's speed, by the lower end of the interval


@dataclass
class Known:
    """Facts about the model, and what each step found with what it depended on."""

    name: str
    about: Facts = field(default_factory=dict[str, Any])
    steps: dict[str, Facts] = field(default_factory=dict[str, Facts])

    def step(self, name: Step) -> Facts:
        """What the step found; nothing where it has not run."""
        return cast("Facts", self.steps.get(name, {}).get("found", {}))


class Store:
    """`keep` takes results of other sources and machines for good."""

    def __init__(self, folder: Path, depends_on: Mapping[str, Any], *, keep: bool = False) -> None:
        self.folder, self.depends_on, self.keep = folder, dict(depends_on), keep

    def read(self, name: str) -> Known:
        try:
            stored = json.loads(self._path(name).read_text(encoding="utf-8"))
            return Known(str(stored["name"]), stored["about"], stored["steps"])
        except (OSError, ValueError, KeyError, TypeError):
            return Known(name)

    def has(self, known: Known, step: Step) -> bool:
        stored = known.steps.get(step)
        return stored is not None and (self.keep or stored.get("depends_on") == self.depends_on)

    def write(self, known: Known, step: Step, found: Facts) -> None:
        known.steps[step] = {"depends_on": self.depends_on, "found": found}
        path = self._path(known.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        content = {"name": known.name, "about": known.about, "steps": known.steps}
        unfinished.write_text(json.dumps(content, indent=1), encoding="utf-8")
        unfinished.replace(path)

    def all(self) -> list[Known]:
        names = [json.loads(path.read_text(encoding="utf-8"))["name"] for path in sorted(self.folder.glob("*.json"))]
        return [self.read(str(name)) for name in names]

    def artifact(self, name: str) -> Path:
        """Where the model's artifact lies between steps."""
        return self.folder / "artifacts" / name.replace("/", "+")

    def _path(self, name: str) -> Path:
        return self.folder / f"{name.replace('/', '+')}.json"
