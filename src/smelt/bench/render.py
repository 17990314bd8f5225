"""Rows -> table, Markdown, CSV, JSON.

Input: an `Outcome`. Output: text. Invariant: every form has the same figures; JSON and CSV have all of them,
unrounded.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final, cast

from smelt.bench.suite import Outcome, Row

_WIDTH_OF_A_FILE: Final = 160
_COLUMNS: Final = (
    "model",
    "threads",
    "peer",
    "ms",
    "p90",
    "p99",
    "vs first [95%]",
    "verdict",
    "of limit",
    "first run",
    "MB",
    "error",
)


def as_facts(outcome: Outcome) -> dict[str, Any]:
    rows = [{**asdict(row), "verdict": row.ratio.verdict if row.ratio else None} for row in outcome.rows]
    limits = [asdict(found) for found in outcome.limits]
    return _finite({"machine": outcome.machine, "limits": limits, "rows": rows})


def _finite(facts: Any) -> Any:
    """JSON has no infinity: what is not a number becomes null."""
    if isinstance(facts, dict):
        return {key: _finite(value) for key, value in cast("dict[str, Any]", facts).items()}
    if isinstance(facts, list):
        return [_finite(value) for value in cast("list[Any]", facts)]
    return None if isinstance(facts, float) and not math.isfinite(facts) else facts


def to_json(outcome: Outcome) -> str:
    return json.dumps(as_facts(outcome), indent=1)


def to_csv(outcome: Outcome) -> str:
    text = io.StringIO()
    flat = [_flat(row) for row in outcome.rows]
    writer = csv.DictWriter(text, list(flat[0]) if flat else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def to_markdown(outcome: Outcome) -> str:
    lines = [f"| {' | '.join(_COLUMNS)} |", f"|{'---|' * len(_COLUMNS)}"]
    lines += [f"| {' | '.join(_cells(row))} |" for row in outcome.rows]
    return "\n".join([*notes(outcome), "", *lines, ""])


def print_table(outcome: Outcome, *, color: bool = True) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(no_color=not color)
    if not console.is_terminal:
        console.width = _WIDTH_OF_A_FILE
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in _COLUMNS:
        numeric = name in {"threads", "ms", "p90", "p99", "of limit", "first run", "MB", "error"}
        table.add_column(name, justify="right" if numeric else "left", no_wrap=name in {"model", "peer"})
    last: tuple[str, int] | None = None
    for row in outcome.rows:
        fresh = (row.case, row.threads) != last
        if fresh and last is not None:
            table.add_section()
        last = (row.case, row.threads)
        table.add_row(*(Text(cell, style=_style(row)) for cell in _cells(row, fresh)))
    console.print(table)
    for line in notes(outcome):
        console.print(Text(line, style="dim"))


def notes(outcome: Outcome) -> list[str]:
    """The machine, its limits, and what was compiled."""
    lines = [outcome.machine, *(str(limits) for limits in outcome.limits if limits.fma)]
    described = {row.case: row.about for row in outcome.rows}
    lines += [f"{case}: {about}" for case, about in described.items()]
    compiled = {row.case: row for row in outcome.rows if row.compile_s is not None}
    return lines + [
        f"smelt on {case}: {row.coverage}, compiled in {row.compile_s:.1f} s" for case, row in compiled.items()
    ]


def _style(row: Row) -> str:
    if row.problem:
        return "dim"
    verdict = row.ratio.verdict if row.ratio else ""
    return {"faster": "green", "slower": "red"}.get(verdict, "") if row.peer.startswith("smelt") else ""


def _cells(row: Row, fresh: bool = True) -> Sequence[str]:
    head = (row.case, str(row.threads)) if fresh else ("", "")
    if row.problem:
        return (*head, row.peer, "-", "", "", row.problem, "", "", "", "", "")
    return (
        *head,
        row.peer,
        _figure(row.median_ms),
        _figure(row.p90_ms),
        _figure(row.p99_ms),
        str(row.ratio) if row.ratio else "",
        row.ratio.verdict if row.ratio else "",
        f"{row.share:.0%} {row.bound}" if row.share is not None else "",
        f"{(row.load_s or 0) * 1e3 + (row.first_ms or 0):.0f}",
        f"{row.peak_mb:.0f}" if row.peak_mb is not None else "",
        f"{row.error:.1e}" if row.error is not None else "",
    )


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def _flat(row: Row) -> dict[str, Any]:
    facts = asdict(row)
    ratio = cast("dict[str, float]", facts.pop("ratio") or {})
    found = row.ratio.verdict if row.ratio else ""
    return {
        **facts,
        "ratio": ratio.get("value"),
        "ratio_low": ratio.get("low"),
        "ratio_high": ratio.get("high"),
        "verdict": found,
    }
