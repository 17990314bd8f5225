"""Rows -> table, Markdown, CSV, JSON.

Input: an `Outcome`. Output: text. Invariant: every form has the same figures; JSON and CSV have all of them,
unrounded.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, cast

from smelt.bench.outcome import Outcome, Row, as_facts
from smelt.bench.summary import summarize

_WIDTH_OF_A_FILE: Final = 190


@dataclass(frozen=True)
class Column:
    """`always` columns are there even when no row has anything to say in them."""

    name: str
    cell: Callable[[Row], str]
    right: bool = True
    always: bool = True


def _verdict(row: Row) -> str:
    if row.behind:
        return "stopped, far behind"
    return row.ratio.verdict if row.ratio else ""


def _vs_best(row: Row) -> str:
    return f"{row.vs_best} {row.best}" if row.vs_best else ""


def _first_run(row: Row) -> str:
    return f"{(row.load_s or 0) * 1e3 + (row.first_ms or 0):.0f}"


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"


_COLUMNS: Final = (
    Column("ms", lambda row: _figure(row.median_ms)),
    Column("p50", lambda row: _figure(row.p50_ms)),
    Column("p90", lambda row: _figure(row.p90_ms)),
    Column("p99", lambda row: _figure(row.p99_ms)),
    Column("tokens/s", lambda row: _figure(row.tokens_per_s), always=False),
    Column("vs first [95%]", lambda row: str(row.ratio) if row.ratio else "", right=False),
    Column("verdict", _verdict, right=False),
    Column("vs best [95%]", _vs_best, right=False, always=False),
    Column("of limit", lambda row: f"{row.share:.0%} {row.bound}" if row.share is not None else ""),
    Column("first run", _first_run),
    Column("MB", lambda row: f"{row.peak_mb:.0f}" if row.peak_mb is not None else ""),
    Column("error", lambda row: f"{row.error:.1e}" if row.error is not None else ""),
)


def columns(outcome: Outcome) -> list[Column]:
    """Those that have something to say about these rows."""
    return [c for c in _COLUMNS if c.always or any(c.cell(row) for row in outcome.rows if not row.problem)]


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
    shown = columns(outcome)
    names = ("model", "threads", "peer", *(column.name for column in shown))
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    lines += [f"| {' | '.join((row.case, str(row.threads), row.peer, *cells(row, shown)))} |" for row in outcome.rows]
    return "\n".join([*notes(outcome), "", *lines, ""])


def print_table(outcome: Outcome, *, color: bool = True) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(no_color=not color)
    if not console.is_terminal:
        console.width = _WIDTH_OF_A_FILE
    table = Table(box=None, pad_edge=False, header_style="bold")
    shown = columns(outcome)
    for name in ("model", "threads", "peer"):
        table.add_column(name, justify="right" if name == "threads" else "left", no_wrap=True)
    for column in shown:
        table.add_column(column.name, justify="right" if column.right else "left")
    last: tuple[str, int] | None = None
    for row in outcome.rows:
        fresh = (row.case, row.threads) != last
        if fresh and last is not None:
            table.add_section()
        last = (row.case, row.threads)
        head = (row.case, str(row.threads)) if fresh else ("", "")
        table.add_row(*(Text(cell, style=_style(row)) for cell in (*head, row.peer, *cells(row, shown))))
    console.print(table)
    for line in notes(outcome):
        console.print(Text(line, style="dim"))


def notes(outcome: Outcome) -> list[str]:
    """What it comes to, the machine, its limits, and what was compiled."""
    lines = [str(summary) for summary in summarize(outcome)]
    lines += [outcome.machine, *(str(limits) for limits in outcome.limits if limits.fma)]
    described = {row.case: row for row in outcome.rows if row.work} | {
        row.case: row for row in outcome.rows if not row.work and not row.problem
    }
    lines += [f"{case}: {row.about}{_amount(row)}" for case, row in described.items()]
    compiled = {row.case: row for row in outcome.rows if row.compile_s is not None}
    return lines + [
        f"smelt on {case}: {row.coverage}, compiled in {row.compile_s:.1f} s" for case, row in compiled.items()
    ]


def _amount(row: Row) -> str:
    if row.work is None:
        return ""
    return f"; {row.work.flops / 1e9:.3g} GFLOP, {row.work.bytes / 1e6:.3g} MB"


def _style(row: Row) -> str:
    if row.problem:
        return "dim"
    return {"faster": "green", "slower": "red"}.get(_verdict(row), "") if row.is_ours else ""


def cells(row: Row, shown: Sequence[Column]) -> list[str]:
    """One text per column; what went wrong stands where the comparison would."""
    if not row.problem:
        return [column.cell(row) for column in shown]
    blank = {"ms": "-", "vs first [95%]": row.problem}
    return [blank.get(column.name, "") for column in shown]


def _flat(row: Row) -> dict[str, Any]:
    facts = asdict(row)
    parts: dict[str, Any] = {}
    for key, kept in (("ratio", ("value", "low", "high")), ("vs_best", ("value", "low", "high"))):
        found = cast("dict[str, float]", facts.pop(key) or {})
        parts |= {key if part == "value" else f"{key}_{part}": found.get(part) for part in kept}
    work = cast("dict[str, float]", facts.pop("work") or {})
    return {**facts, **parts, "flops": work.get("flops"), "bytes": work.get("bytes"), "verdict": _verdict(row)}
