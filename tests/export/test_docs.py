"""The code of docs/export.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from smelt.export import forget_converter


def test_every_block_runs_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) >= 3
    try:
        for block in blocks:
            exec(compile(block, "docs/export.md", "exec"), names)
    finally:
        forget_converter("docs::scaled_gelu", "docs::log1p_squared")
    assert (tmp_path / "model.onnx").exists()
