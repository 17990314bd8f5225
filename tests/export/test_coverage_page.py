"""The page that lists what the exporter converts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from smelt.export import table
from smelt.export.coverage_page import aten_page, versions

PAGE = Path(__file__).parents[2] / "docs" / "aten.md"


def test_the_page_is_what_the_sources_say(tmp_path: Path):
    written = PAGE.read_text()
    if versions() not in written:
        pytest.skip(f"the page was made with other versions than {versions()}")
    # In a process of its own: packages that other tests import bring ops of theirs.
    subprocess.run([sys.executable, "-m", "smelt.export.coverage_page", tmp_path], check=True, stdout=subprocess.PIPE)
    assert written == (tmp_path / "aten.md").read_text(), "run: python -m smelt.export.coverage_page docs"


def test_more_targets_are_converted_than_torchlib_knows():
    origins = [entry.origin for entry in table()]
    assert origins.count("table") > 505


def test_overloads_are_listed_with_their_op():
    assert "`add` (Scalar, Tensor)" in aten_page()
