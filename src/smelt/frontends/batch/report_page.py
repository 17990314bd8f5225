"""Report -> one HTML page that needs nothing else.

Input: a `Report`. Output: HTML text with a plot of the rates. Invariant: no script, nothing loaded from anywhere; names
enter escaped only.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from smelt.frontends.batch.report import Report

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 760, 240, 70, 30
_STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:50rem;padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse}td,th{padding:.2rem .8rem;text-align:left;border-bottom:1px solid #ddd}
td.n{text-align:right;font-variant-numeric:tabular-nums}svg{max-width:100%;height:auto}
text{font-size:12px;fill:#555}.bar{fill:#2a78b8}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}text{fill:#aaa}td,th{border-color:#444}}
"""
_PAGE: Final = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width"><title>smelt batch: {title}</title><style>{style}</style></head>
<body><h1>smelt batch</h1><p>{summary}</p><h2>Rows per second</h2>{plot}
<h2>Time by stage</h2>{stages}{rest}</body></html>
"""


def page(report: Report) -> str:
    lines = [escape(line) for line in report.lines()]
    return _PAGE.format(
        title=escape(report.output), style=_STYLE, summary="<br>".join(lines[:2]), plot=plot(report.rates),
        stages=_stages(report), rest=_measured(report) + "".join(f"<p>{line}</p>" for line in lines[3:]),
    )  # fmt: skip


def plot(rates: list[list[float]]) -> str:
    """A line over time, with its highest value and its last time as axes."""
    points = rates[1:] or rates
    highest = max((rate for _, rate in points), default=0.0) or 1.0
    last = points[-1][0] if points else 1.0
    wide, high = _WIDTH - _LEFT - 10, _HEIGHT - _BOTTOM - 10

    def place(seconds: float, rate: float) -> str:
        return f"{_LEFT + wide * seconds / (last or 1.0):.1f},{10 + high * (1 - rate / highest):.1f}"

    line = " ".join(place(seconds, rate) for seconds, rate in points)
    ticks = "".join(
        f'<text x="{_LEFT - 6}" y="{14 + high * (1 - share):.0f}" text-anchor="end">{highest * share:,.0f}</text>'
        f'<line x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{10 + high * (1 - share):.0f}" y2="{10 + high * (1 - share):.0f}"'
        ' stroke="#8884"/>'
        for share in (0.0, 0.5, 1.0)
    )
    times = "".join(
        f'<text x="{_LEFT + wide * share:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">{last * share:,.0f} s</text>'
        for share in (0.0, 0.5, 1.0)
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="rows per second over time">{ticks}{times}'
        f'<polyline points="{line}" fill="none" stroke="#2a78b8" stroke-width="2"/></svg>'
    )


def _stages(report: Report) -> str:
    most = max([*report.stages.values(), 1e-9])
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="n">{seconds:,.1f} s</td><td><svg width="300" height="12">'
        f'<rect class="bar" height="12" width="{300 * seconds / most:.0f}"/></svg></td></tr>'
        for name, seconds in report.stages.items()
    )
    return f"<table>{rows}</table>"


def _measured(report: Report) -> str:
    if not report.measured:
        return ""
    rows = "".join(
        "<tr>" + "".join(f'<td class="n">{number:,.0f}</td>' for number in one) + "</tr>" for one in report.measured
    )
    head = "<tr><th>workers</th><th>threads</th><th>batch</th><th>rows/s</th></tr>"
    return f"<h2>Measured before the run</h2><table>{head}{rows}</table>"
