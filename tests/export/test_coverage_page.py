"""The page that lists what the exporter converts."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from smelt.export import table
from smelt.export.coverage_page import aten_page, versions

PAGE = Path(__file__).parents[2] / "docs" / "aten.md"


def test_the_page_is_what_the_sources_say():
    written = PAGE.read_text()
    if versions() not in written:
        pytest.skip(f"the page was made with other versions than {versions()}")
    assert written == aten_page(), "run: python -m smelt.export.coverage_page docs"


def test_more_targets_are_converted_than_torchlib_knows():
    origins = [entry.origin for entry in table()]
    assert origins.count("table") > 505


def test_overloads_are_listed_with_their_op():
    assert "`add` (Scalar, Tensor)" in aten_page()
