"""Language models in onnxruntime-genai: what is made of the answers of the processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from smelt.bench import llm
from smelt.bench.llm import as_facts, measure, to_markdown, write_picture
from smelt.bench.llm_models import MODELS, token_names


class Pretended:
    """A process whose second folder is twice as fast, and gives another third token."""

    def __init__(self, folder: Path, threads: int, tokens: int) -> None:
        self.slow = 2.0 if folder.name == "stock" else 1.0
        assert threads == 2 and tokens == 100
        self.closed = False

    def ask(self, prompt: int, answer: int) -> dict[str, Any]:
        made = [7, 8, 9 if self.slow == 2 else 10, *range(answer - 2)]
        steps = [0.01 * self.slow] * answer
        return {"first_s": 0.1 * self.slow, "steps_s": steps, "peak_bytes": 3_000_000, "tokens": made}

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    decoder = {"num_key_value_heads": 2, "head_size": 4, "num_hidden_layers": 3}
    for name in ("stock", "smelt"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.data").write_bytes(bytes(100_000))
        config = {"model": {"vocab_size": 100, "decoder": decoder}}
        (tmp_path / name / "genai_config.json").write_text(json.dumps(config))
        found[name] = tmp_path / name
    return found


def test_rates_ratios_and_shares(folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm, "_Worker", Pretended)
    rows = measure(folders, [50, 10], 2, answer=4, rounds=8, read_rate=1e8)
    stock, ours = rows[0], rows[1]
    assert [row.name for row in rows] == ["stock", "smelt", "stock", "smelt"] and rows[2].prompt == 10
    assert stock.decode is None and ours.decode is not None and ours.prefill is not None
    assert ours.decode.value == pytest.approx(2) and ours.prefill.value == pytest.approx(2)
    assert ours.prefill_rate == pytest.approx(500) and ours.decode_rate == pytest.approx(100)
    assert ours.same_tokens == 2 and stock.same_tokens == stock.answer == 5
    bytes_read = 100_000 + 52 * 8 * 2 * 4 * 3  # keys and values of the tokens so far, float32
    assert ours.read_share == pytest.approx(bytes_read / 0.01 / 1e8)
    assert json.loads(json.dumps(as_facts(rows)))[1]["decode"]["rounds"] == 8
    lines = to_markdown(rows).splitlines()
    assert len(lines) == 6 and "2.00x" in lines[3] and "2/5" in lines[3]
    pytest.importorskip("matplotlib")
    write_picture(rows, tmp_path / "rates.png")
    assert (tmp_path / "rates.png").read_bytes()[1:4] == b"PNG"


def test_configurations_have_a_token_for_each_byte() -> None:
    for sizes in MODELS.values():
        names = token_names(int(sizes["vocab_size"]))
        assert len(names) == len(set(names)) == sizes["vocab_size"] and {"a", "~", "th"} <= set(names)
