"""Rows -> plain text.

Input: a header and rows of text or numbers. Output: lines with aligned columns: numbers to the right, text to the
left. Invariant: no escape sequences, no trailing spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], indent: str = "  ") -> list[str]:
    """Lines of a table, with a rule below the header; nothing at all without rows."""
    body = [[_cell(cell) for cell in row] for row in rows]
    if not body:
        return []
    right = [all(_is_number(row[i]) for row in body) for i in range(len(header))]
    widths = [max(len(line[i]) for line in (list(header), *body)) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True)]
        return (indent + "  ".join(padded)).rstrip()

    return [line(list(header)), line(["-" * w for w in widths]), *(line(row) for row in body)]


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


_NUMBER = re.compile(r"-|[-+]?[\d,]+(\.\d+)?(e[-+]?\d+)?[%x]?( (us|ms|s|B|[kMG]B))?|nan|-?inf")


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def listed(counts: Iterable[tuple[str, int]], limit: int = 6) -> str:
    """`MatMul x3, Add, … 4 more`."""
    items = list(counts)
    shown = [name if count == 1 else f"{name} x{count}" for name, count in items[:limit]]
    return ", ".join([*shown, f"… {len(items) - limit} more"] if len(items) > limit else shown)
