"""The code blocks of the documentation run, each page as one program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("name", ["torch_compile.md", "training.md", "generate.md"])
def test_the_code_of_a_page_runs(name: str, capsys: pytest.CaptureFixture[str]):
    text = (DOCS / name).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    exec("\n".join(blocks), {"__name__": "page"})
    if "explain" in text:
        assert "in ONNX Runtime" in capsys.readouterr().out or name != "torch_compile.md"


def test_every_option_is_in_the_page():
    from dataclasses import fields

    from smelt.frontends.torch_compile import TorchOptions

    page = (DOCS / "torch_compile.md").read_text(encoding="utf-8")
    assert [f.name for f in fields(TorchOptions) if f"| `{f.name}` |" not in page] == []
