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
    assert [knob.variable for knob in KNOBS if f"| `{knob.variable}` | {knob.about} |" not in page] == []


def test_every_standard_op_has_a_kernel_or_a_reason():
    import onnx

    from smelt.ops import declarations
    from smelt.ops.unsupported import REASONS

    standard = {s.name for s in onnx.defs.get_all_schemas() if not s.domain and not s.deprecated}
    declared = {d.name for d in declarations() if not d.domain}
    assert standard - declared - REASONS.keys() == set()
    assert REASONS.keys() - standard == set()
