from __future__ import annotations

from pathlib import Path

import pytest

from smelt.base.config import KNOBS
from smelt.report.docs import PAGES

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_current(name: str):
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "run `python -m smelt.report.docs`"


def test_every_knob_is_in_the_page_of_the_command_line():
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert [knob.variable for knob in KNOBS if f"| `{knob.variable}` | {knob.meaning} |" not in page] == []
