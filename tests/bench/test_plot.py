"""Plots hold what was measured, by themselves."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from smelt.base import SmeltError
from smelt.bench.outcome import Outcome
from smelt.bench.plot import bars, check_plot, to_html, write_plot

Make = Callable[..., Outcome]


def test_every_timed_row_is_a_bar_with_its_interval(outcome: Make):
    found = bars(outcome(), 2)
    assert [(bar.case, bar.peer, bar.speed) for bar in found] == [
        ("bert", "ort", 1.0),
        ("bert", "smelt", 1.6),
        ("bert", "openvino", 1.25),
        ("<resnet>", "ort", 1.0),
        ("<resnet>", "smelt", 0.9),
    ]
    assert found[0].low is None and found[1].low == pytest.approx(1.6 * 0.98)


def test_the_page_needs_nothing_and_escapes_names(outcome: Make):
    page = to_html(outcome())
    assert "<resnet>" not in page and "&lt;resnet&gt;" in page
    assert not re.search(r"<script|<link|src=|https?://", page)
    picture = ElementTree.fromstring(re.search(r"<svg.*?</svg>", page, re.S).group())
    assert len(picture.findall(".//rect")) == 5
    assert "not installed: openvino" in page and "geometric mean of 2 models" in page


def test_a_longer_bar_is_faster(outcome: Make):
    picture = re.search(r"<svg.*?</svg>", to_html(outcome()), re.S).group()
    widths = [float(width) for width in re.findall(r'<rect [^>]*width="([\d.]+)"', picture)]
    assert widths[1] / widths[0] == pytest.approx(1.6, rel=1e-2)


def test_a_png_is_written_where_matplotlib_is(outcome: Make, tmp_path: Path):
    pytest.importorskip("matplotlib")
    write_plot(outcome(), tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_plotted_is_refused_before_anything_is_timed(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(SmeltError, match=r"\.gif"):
        check_plot(Path("out.gif"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SmeltError, match="matplotlib"):
        check_plot(Path("out.png"))
