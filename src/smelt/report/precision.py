"""What a lower precision costs: a table of layers and the curve of accuracy against time, for the report.

Input: the accuracy that a compilation measured. Output: plain rows, lines of text, an SVG picture. Invariant: the
picture's text comes from here alone; what is infinite is drawn at the top.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from smelt.report.readable import counted, readable
from smelt.report.tables import table

_WIDTH, _HEIGHT, _MARGIN = 560, 240, 48


@dataclass(frozen=True)
class LayerAccuracy:
    """`noise_db`: signal to noise of the worst output when the weights of this layer alone are narrow; None: no
    noise."""

    name: str
    op: str
    elements: int
    share: float
    noise_db: float | None
    precision: str
    wide: bool


@dataclass(frozen=True)
class CurvePoint:
    """With `wide` layers wider than asked for `narrow_share` of the saving in bits stays, by multiply-adds."""

    wide: int
    narrow_share: float
    value: float | None


@dataclass(frozen=True)
class PrecisionReport:
    """`unit` is dB, or what the user's metric measures; a value of None has no noise at all."""

    precision: str
    budget: float
    unit: str
    outputs: tuple[tuple[str, float | None], ...]
    layers: tuple[LayerAccuracy, ...] = ()
    curve: tuple[CurvePoint, ...] = ()

    @property
    def svg(self) -> str:
        return _picture(self.curve, self.budget, self.unit)


def precision_of(accuracy: Any) -> PrecisionReport | None:
    """From `lowered.Accuracy`."""
    if accuracy is None:
        return None
    layers = tuple(
        LayerAccuracy(
            readable(o.name), o.op_type, o.elements, o.share, _finite(o.noise_db), o.precision or "float32", o.wide
        )
        for o in accuracy.layers
    )
    curve = tuple(CurvePoint(point.wide, point.narrow_share, _finite(point.value)) for point in accuracy.curve)
    outputs = tuple((readable(name), _finite(ratio)) for name, ratio in accuracy.outputs.items())
    unit = "dB" if accuracy.value is None else "metric"
    return PrecisionReport(accuracy.precision, accuracy.budget, unit, outputs, layers, curve)


def precision_lines(report: PrecisionReport | None, limit: int) -> list[str]:
    """The table of layers, the noisiest first, and the points that were measured."""
    if report is None or not report.layers:
        return []
    ordered = sorted(report.layers, key=lambda one: math.inf if one.noise_db is None else one.noise_db)
    rows = [(o.name, o.op, o.elements, f"{o.share:.1%}", _spelled(o.noise_db), o.precision) for o in ordered[:limit]]
    head = ("layer", "op", "weights", "multiply-adds", "alone, dB", "type")
    more = [f"… {counted(len(ordered) - limit, 'layer')} more"] if len(ordered) > limit else []
    points = [f"{p.wide} wider: {_spelled(p.value)} ({p.narrow_share:.0%} of the saving)" for p in report.curve]
    return [*table(head, rows), *more, "measured, " + report.unit + ": " + "; ".join(points)]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _spelled(value: float | None) -> str:
    return "no noise" if value is None else f"{value:.4g}"


_DOT: Final = '<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="currentColor"><title>{title}</title></circle>'
_LABEL: Final = '<text x="{x:.1f}" y="{y:.1f}" font-size="11" fill="currentColor" text-anchor="{anchor}">{text}</text>'


def _picture(curve: Sequence[CurvePoint], budget: float, unit: str) -> str:
    """Accuracy upwards, what is saved to the right."""
    if len(curve) < 2:
        return ""
    values = [point.value for point in curve if point.value is not None] + ([budget] if budget else [])
    low, high = min(values, default=0.0), max(values, default=1.0)
    spread = max(high - low, abs(high) / 100, 1e-9)
    top = high + spread / 10

    def place(point: CurvePoint) -> tuple[float, float]:
        value = top if point.value is None else point.value
        x = _MARGIN + point.narrow_share * (_WIDTH - 2 * _MARGIN)
        return x, _HEIGHT - _MARGIN - (value - low) / (top - low) * (_HEIGHT - 2 * _MARGIN)

    line_points = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, curve))
    parts = [f'<polyline points="{line_points}" fill="none" stroke="currentColor"/>']
    for point in curve:
        x, y = place(point)
        parts.append(_DOT.format(x=x, y=y, title=f"{point.wide} layers wider: {_spelled(point.value)} {unit}"))
        parts.append(_LABEL.format(x=x, y=y - 8, anchor="middle", text=_spelled(point.value)))
    if budget:
        y = place(CurvePoint(0, 0.0, budget))[1]
        line = f'<line x1="{_MARGIN}" x2="{_WIDTH - _MARGIN}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" '
        parts.append(line + 'stroke-dasharray="4 4"/>')
        parts.append(_LABEL.format(x=_WIDTH - 4, y=y + 4, anchor="end", text=f"{budget:g}"))
    parts.append(
        _LABEL.format(x=_WIDTH / 2, y=_HEIGHT - 12, anchor="middle", text="share of the saving in bits that stays")
    )
    parts.append(_LABEL.format(x=4, y=16, anchor="start", text=unit))
    body = "".join(parts)
    head = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img" aria-label="accuracy against time">'
    return f"{head}{body}</svg>"
