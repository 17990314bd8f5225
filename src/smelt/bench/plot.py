"""An outcome as a picture.

Input: an `Outcome` and a path that ends in .html or .png. Output: the file. Invariant: the HTML page holds everything
itself (one inline SVG per number of threads, no script, nothing fetched), and every figure of the table; names are
escaped.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final, cast

from smelt.base import ConfigError
from smelt.bench.outcome import Outcome, Row
from smelt.bench.render import cells, columns, notes

_LEFT, _PLOT, _RIGHT, _BAR, _GAP, _HEAD = 190, 560, 170, 15, 16, 26
_OURS: Final = "#d9480f"
_OTHERS: Final = ("#868e96", "#4c6ef5", "#12b886", "#be4bdb", "#fab005", "#15aabf", "#82c91e", "#e64980")


@dataclass(frozen=True)
class Bar:
    """One peer's speed relative to the first; `low` and `high` are the interval, where one is known."""

    case: str
    peer: str
    speed: float
    low: float | None
    high: float | None
    ms: float
    ours: bool


def bars(outcome: Outcome, threads: int) -> list[Bar]:
    """Rows that were timed against a first peer that was timed as well."""
    rows = [row for row in outcome.rows if row.threads == threads and row.median_ms is not None]
    first = {row.case: row for row in reversed(rows)}
    return [_bar(row) for row in rows if row is first[row.case] or row.ratio is not None]


def _bar(row: Row) -> Bar:
    ratio = row.ratio
    known = ratio is not None and ratio.rounds > 0 and ratio.high != float("inf")
    low, high = (ratio.low, ratio.high) if ratio is not None and known else (None, None)
    speed = 1.0 if ratio is None else ratio.value
    return Bar(row.case, row.peer, speed, low, high, row.median_ms or 0.0, row.is_ours)


def write_plot(outcome: Outcome, path: Path) -> None:
    """Raises ConfigError for other endings, and for .png without matplotlib."""
    check_plot(path)
    if path.suffix == ".html":
        path.write_text(to_html(outcome), encoding="utf-8")
    else:
        _write_png(outcome, path)


def check_plot(path: Path) -> None:
    """The same refusals before anything is timed."""
    if path.suffix not in {".html", ".png"}:
        raise ConfigError("SM-CONFIG-005", f"no plot of kind {path.suffix!r}", hint="Use a name in .html or .png.")
    if path.suffix == ".png" and importlib.util.find_spec("matplotlib") is None:
        hint = "Install matplotlib, or use a name in .html, which needs nothing."
        raise ConfigError("SM-CONFIG-005", "a .png plot needs matplotlib", hint=hint)


# HTML

_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>smelt bench</title>
<meta name="viewport" content="width=device-width">
<style>
:root {{ color-scheme: light dark; --ink: #212529; --soft: #868e96; --line: #dee2e6; --page: #fff; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #e9ecef; --soft: #909296; --line: #373a40; --page: #1a1b1e; }} }}
body {{ font: 14px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 2rem; }}
h1 {{ font-size: 1.3rem }} h2 {{ font-size: 1.05rem; margin-top: 2rem }}
svg text {{ font: 12px system-ui, sans-serif; fill: var(--ink) }} svg .soft {{ fill: var(--soft) }}
svg line {{ stroke: var(--line) }} svg .one {{ stroke: var(--ink) }} svg .range {{ stroke: var(--ink) }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 12.5px }}
th, td {{ padding: 2px 10px 2px 0; text-align: left; white-space: nowrap }} .n {{ text-align: right }}
tr.group td {{ border-top: 1px solid var(--line) }} tr.ours td {{ font-weight: 600 }}
tr.problem td {{ color: var(--soft) }}
.scroll {{ overflow-x: auto }} p.note {{ color: var(--soft); margin: .15rem 0 }}
</style></head><body>
<h1>smelt bench</h1>
{summary}
{charts}
<h2>All figures</h2>
<div class="scroll"><table>{table}</table></div>
{notes}
</body></html>
"""


def to_html(outcome: Outcome) -> str:
    said = notes(outcome)
    marks = [line for line in said if line.startswith("smelt against")]
    counts = sorted({row.threads for row in outcome.rows})
    charts = [(threads, bars(outcome, threads)) for threads in counts]
    return _PAGE.format(
        summary="".join(f"<p>{escape(line)}</p>" for line in marks),
        charts="".join(_chart(threads, found) for threads, found in charts if found),
        table=_table(outcome),
        notes="".join(f'<p class="note">{escape(line)}</p>' for line in said if line not in marks),
    )


def _colors(found: Sequence[Bar]) -> dict[str, str]:
    others = list(dict.fromkeys(bar.peer for bar in found if not bar.ours))
    colors = {peer: _OTHERS[place % len(_OTHERS)] for place, peer in enumerate(others)}
    return colors | {bar.peer: _OURS for bar in found if bar.ours}


def _chart(threads: int, found: Sequence[Bar]) -> str:
    top = max(1.2, *(bar.high or bar.speed for bar in found)) * 1.02
    colors, parts, y = _colors(found), list[str](), _HEAD
    last = ""
    for bar in found:
        if bar.case != last:
            y += _GAP if last else 0
            parts.append(f'<text x="0" y="{y + 12}"><title>{escape(bar.case)}</title>{escape(bar.case[:28])}</text>')
            last = bar.case
        parts.append(_bar_svg(bar, y, top, colors[bar.peer]))
        y += _BAR
    axis = "".join(_tick(value, top, y) for value in _ticks(top))
    title = "1 thread" if threads == 1 else f"{threads} threads"
    width, height = _LEFT + _PLOT + _RIGHT, y + 8
    return (
        f"<h2>{title}: speed relative to {escape(found[0].peer)} (longer is faster)</h2>"
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">{axis}{"".join(parts)}</svg>'
    )


def _ticks(top: float) -> list[float]:
    step = next(step for step in (0.2, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 50.0, 1e9) if top / step <= 9)
    return [place * step for place in range(int(top / step) + 1)]


def _tick(value: float, top: float, bottom: float) -> str:
    x = _LEFT + _PLOT * value / top
    kind = ' class="one"' if value == 1 else ""
    label = f'<text x="{x:.1f}" y="14" text-anchor="middle" class="soft">{value:g}</text>'
    return f'<line{kind} x1="{x:.1f}" y1="20" x2="{x:.1f}" y2="{bottom:.1f}"/>{label}'


def _bar_svg(bar: Bar, y: float, top: float, color: str) -> str:
    scale = _PLOT / top
    wide, middle = bar.speed * scale, y + _BAR / 2
    said = f"{bar.case}, {bar.peer}: {bar.ms:.3g} ms, {bar.speed:.3f}x"
    whisker = ""
    if bar.low is not None and bar.high is not None:
        ends = f'x1="{_LEFT + bar.low * scale:.1f}" x2="{_LEFT + bar.high * scale:.1f}"'
        whisker = f'<line class="range" {ends} y1="{middle}" y2="{middle}"/>'
        said += f" [{bar.low:.3f}, {bar.high:.3f}]"
    label_x = _LEFT + max(wide, (bar.high or 0) * scale) + 6
    weight = ' font-weight="600"' if bar.ours else ""
    return (
        f'<g><title>{escape(said)}</title><rect x="{_LEFT}" y="{y + 2}" width="{wide:.1f}" height="{_BAR - 4}" '
        f'fill="{color}"/>{whisker}<text x="{label_x:.1f}" y="{y + 12}"{weight}>{escape(bar.peer)} '
        f"{bar.speed:.2f}</text></g>"
    )


def _table(outcome: Outcome) -> str:
    shown = columns(outcome)
    heads = ["<th>model</th><th>threads</th><th>peer</th>"]
    heads += [f"<th{_side(column.right)}>{escape(column.name)}</th>" for column in shown]
    lines, last = [f"<tr>{''.join(heads)}</tr>"], None
    for row in outcome.rows:
        kinds = [
            *(["group"] if (row.case, row.threads) != last else []),
            *(["problem"] if row.problem else ["ours"] if row.is_ours else []),
        ]
        last = (row.case, row.threads)
        texts = zip(cells(row, shown), shown, strict=True)
        cell = "".join(f"<td{_side(column.right)}>{escape(text)}</td>" for text, column in texts)
        head = f"<td>{escape(row.case)}</td><td>{row.threads}</td><td>{escape(row.peer)}</td>"
        lines.append(f'<tr class="{" ".join(kinds)}">{head}{cell}</tr>')
    return "\n".join(lines)


def _side(right: bool) -> str:
    return ' class="n"' if right else ""


# PNG


def _write_png(outcome: Outcome, path: Path) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    cast("Any", mpl).rcParams["font.size"] = 8
    counts = sorted({row.threads for row in outcome.rows})
    charts = [(threads, found) for threads in counts if (found := bars(outcome, threads))]
    tall = sum(0.16 * len(found) + 0.9 for _, found in charts)
    figure = cast("Any", Figure)(figsize=(9, max(2.0, tall)), layout="constrained")
    heights = [len(found) + 4 for _, found in charts]
    axes = figure.subplots(max(1, len(charts)), 1, squeeze=False, height_ratios=heights or None)
    for (threads, found), axis in zip(charts, axes[:, 0], strict=False):
        _draw(axis, threads, found)
    figure.savefig(str(path), dpi=150)


def _draw(axis: Any, threads: int, found: Sequence[Bar]) -> None:
    colors, places, y, last = _colors(found), list[float](), 0.0, ""
    for bar in found:
        y += 1.0 if bar.case == last or not last else 1.8
        last = bar.case
        places.append(y)
    axis.barh(places, [bar.speed for bar in found], color=[colors[bar.peer] for bar in found], height=0.8)
    for place, bar in zip(places, found, strict=True):
        if bar.low is not None and bar.high is not None:
            axis.plot([bar.low, bar.high], [place, place], color="black", linewidth=0.8)
    axis.set_yticks(places, [f"{bar.case}  {bar.peer}" for bar in found])
    axis.axvline(1.0, color="black", linewidth=0.6)
    axis.invert_yaxis()
    title = "1 thread" if threads == 1 else f"{threads} threads"
    axis.set_title(f"{title}: speed relative to {found[0].peer}", loc="left")
