"""The code of docs/eager.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")


def test_every_block_runs_in_order() -> None:
    import smelt

    assert smelt.eager.AVAILABLE
    text = (Path(__file__).parents[3] / "docs" / "eager.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) >= 4
    for block in blocks:
        exec(compile(block, "docs/eager.md", "exec"), names)
    smelt.eager.forget_op("gemm")
