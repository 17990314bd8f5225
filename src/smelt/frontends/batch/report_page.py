"""Report -> one HTML page that needs nothing else.

Input: a `Report`. Output: HTML text with a plot of the rates. Invariant: no script, nothing loaded from anywhere; names
enter escaped only.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from smelt.frontends.batch.report import Report

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 240, 70, 30, 12, 30
_STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:50rem;padding:0 1rem;color:#222;background:#fff}
h1{margin-bottom:0}h1+p{margin-top:0;color:#666;overflow-wrap:anywhere}
table{border-collapse:collapse}
td,th{padding:.2rem .8rem;text-align:left;border-bottom:1px solid #ddd;white-space:nowrap}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}svg{max-width:100%;height:auto}td svg{min-width:80px}
tr.chosen{font-weight:600}text{font-size:12px;fill:#555}.bar{fill:#2a78b8}.area{fill:#2a78b8;opacity:.15}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}h1+p{color:#999}text{fill:#aaa}
td,th{border-color:#444}}
"""
_PAGE: Final = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width"><title>smelt batch: {title}</title><style>{style}</style></head>
<body><h1>smelt batch</h1><p>{title}</p><p>{summary}</p><h2>Rows per second</h2>{plot}
<h2>Time by stage, all workers together</h2>{stages}{rest}</body></html>
"""
_STAGES: Final = {
    "read": "reading",
    "prepare": "preprocessing",
    "infer": "inference",
    "write": "writing",
    "wait": "inference waits for rows",
}


def page(report: Report) -> str:
    lines = [escape(line) for line in report.lines()]
    return _PAGE.format(
        title=escape(report.output), style=_STYLE, summary="<br>".join(lines[:2]), plot=plot(report.rates),
        stages=_stages(report), rest=_measured(report) + "".join(f"<p>{line}</p>" for line in lines[3:]),
    )  # fmt: skip


def plot(rates: list[list[float]]) -> str:
    """A line over time, between axes with round numbers."""
    points = rates[1:] or rates
    rows = ticks(max((rate for _, rate in points), default=0.0))
    times = ticks(points[-1][0] if points else 0.0)
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(seconds: float) -> float:
        return _LEFT + wide * seconds / times[-1]

    def y(rate: float) -> float:
        return _TOP + high * (1 - rate / rows[-1])

    line = " ".join(f"{x(seconds):.1f},{y(rate):.1f}" for seconds, rate in points)
    area = f"{x(points[0][0]):.1f},{y(0):.1f} {line} {x(points[-1][0]):.1f},{y(0):.1f}" if points else ""
    grid = "".join(
        f'<text x="{_LEFT - 6}" y="{y(rate) + 4:.0f}" text-anchor="end">{rate:,g}</text>'
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(rate):.1f}" y2="{y(rate):.1f}" stroke="#8884"/>'
        for rate in rows
    ) + "".join(
        f'<text x="{x(seconds):.0f}" y="{_HEIGHT - 8}" text-anchor="middle">{seconds:,g} s</text>' for seconds in times
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="rows per second over time">{grid}'
        f'<polygon class="area" points="{area}"/>'
        f'<polyline points="{line}" fill="none" stroke="#2a78b8" stroke-width="2"/></svg>'
    )


def ticks(highest: float) -> list[float]:
    """Up to six round numbers from 0 to `highest` or just beyond it."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    return [round(step * place, 12) for place in range(math.ceil(highest / step - 1e-9) + 1)]


def _stages(report: Report) -> str:
    most = max([*report.stages.values(), 1e-9])
    rows = "".join(
        f'<tr><td>{_STAGES[name]}</td><td class="n">{seconds:,.1f} s</td><td><svg viewBox="0 0 300 12" width="300">'
        f'<rect class="bar" height="12" width="{300 * seconds / most:.0f}"/></svg></td></tr>'
        for name, seconds in report.stages.items()
    )
    return f"<table>{rows}</table>"


def _measured(report: Report) -> str:
    if not report.measured:
        return ""
    chosen = [report.workers, report.threads, report.batch]
    rows = "".join(
        ("<tr class='chosen'>" if one[:3] == chosen else "<tr>")
        + "".join(f'<td class="n">{number:,.0f}</td>' for number in one)
        + "</tr>"
        for one in report.measured
    )
    head = "".join(f'<th class="n">{name}</th>' for name in ("workers", "threads", "batch", "rows/s"))
    return f"<h2>Measured before the run</h2><table><tr>{head}</tr>{rows}</table>"
