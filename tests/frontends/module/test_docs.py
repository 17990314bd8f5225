"""The code of docs/module.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")


def test_every_block_runs_in_order() -> None:
    text = (Path(__file__).parents[3] / "docs" / "module.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(compile(block, "docs/module.md", "exec"), names)
