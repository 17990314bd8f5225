"""What the exporter converts, as a list.

Input: the table, torchlib, torch's decompositions. Output: `table()`. Invariant: each target once, under the converter
that would be tried first.
"""

from __future__ import annotations

from dataclasses import dataclass

import smelt.export.aten  # noqa: F401  # pyright: ignore[reportUnusedImport]  # fills the table
from smelt.export import _torchlib, decompose
from smelt.export.expressions import Expression
from smelt.export.records import DEFAULT_OPSET, Origin
from smelt.export.registry import own_targets


@dataclass(frozen=True)
class Entry:
    """A target, who converts it, and how where that is an expression. A decomposition may end in ops that nothing
    converts: those are tried, not promised."""

    target: str
    origin: Origin
    form: str = ""


def table(opset: int = DEFAULT_OPSET) -> tuple[Entry, ...]:
    """Every target, sorted by name."""
    entries: dict[str, Entry] = {name: Entry(name, "decomposition") for name in decompose.targets()}
    entries |= {name: Entry(name, "torchlib") for name in _torchlib.targets(opset)}
    for name, converter in own_targets().items():
        form = str(converter.function) if isinstance(converter.function, Expression) else ""
        entries[name] = Entry(name, converter.origin, form)
    return tuple(entries[name] for name in sorted(entries))
