"""Rows -> plain text.

Input: a header and rows of text or numbers. Output: lines with aligned columns: numbers to the right, text to the
left. Invariant: no escape sequences, no trailing spaces; no line is wider than the terminal, as far as text can be
broken.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Final

from smelt.base.terminal import columns

_LEAST: Final = 16  # columns that a wrapped text keeps


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], indent: str = "  ") -> list[str]:
    """Lines of a table, with a rule below the header; nothing at all without rows."""
    body = [[_cell(cell) for cell in row] for row in rows]
    if not body:
        return []
    right = [all(_is_number(row[i]) for row in body) for i in range(len(header))]
    widths = [max(len(line[i]) for line in (list(header), *body)) for i in range(len(header))]
    widths = _fitted(widths, right, len(indent))

    def line(cells: Sequence[str]) -> str:
        padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True)]
        return (indent + "  ".join(padded)).rstrip()

    wrapped = [one for row in body for one in _wrapped(row, widths)]
    return [line(list(header)), line(["-" * w for w in widths]), *(line(row) for row in wrapped)]


def _fitted(widths: list[int], right: Sequence[bool], indent: int) -> list[int]:
    """Narrow the widest text column, again and again, until all fit or none can be narrower."""
    limit = columns()
    widths = list(widths)
    while limit is not None and (over := indent + sum(widths) + 2 * (len(widths) - 1) - limit) > 0:
        texts = [i for i, w in enumerate(widths) if not right[i] and w > _LEAST]
        if not texts:
            break
        widest = max(texts, key=lambda i: widths[i])
        rest = max((widths[i] for i in texts if i != widest), default=0)
        widths[widest] = max(_LEAST, widths[widest] - over, min(rest, widths[widest] - 1))
    return widths


def _wrapped(row: Sequence[str], widths: Sequence[int]) -> list[list[str]]:
    """The lines of one row: texts that are too long go on below."""
    cells = [
        [text] if len(text) <= width else textwrap.wrap(text, width) for text, width in zip(row, widths, strict=True)
    ]
    return [[c[at] if at < len(c) else "" for c in cells] for at in range(max(len(c) for c in cells))]


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
