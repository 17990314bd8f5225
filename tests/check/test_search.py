"""The search for sizes: what is faster beyond the noise is kept, within its time, and remembered."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import smelt
from smelt.base.config import Config
from smelt.check import search

TEXT = '<ir_version: 9, opset_import: ["" : 20]> g (float[64,32] x) => (float[64,32] y) { p = Exp(x) y = Softmax(p) }'


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Candidates are never run: the second of each setting is 1.2 times as fast, the first is as fast."""
    calls: list[int] = []

    def rounds(_: object, base: object, others: list[object]) -> list[list[list[float]]]:
        calls.append(len(others))
        return [[[100.0 + i % 3, 100.0 + i % 3] for i in range(20)], [[120.0, 100.0] for _ in range(20)]]

    monkeypatch.setattr(search._Search, "_timed", rounds)
    monkeypatch.setattr("smelt.check.examination.tune", lambda *_: smelt.pipeline.Findings())
    return calls


def settings(folder: Path, seconds: float) -> tuple[dict[str, int], str]:
    model = onnx.parser.parse_model(TEXT).SerializeToString()
    config = Config.from_env().with_(cache_dir=folder)
    with smelt.compile(model, force=True, levels="v2", tune=True, tune_seconds=seconds, config=config) as compiled:
        return compiled.result.artifact.manifest["settings"], " ".join(compiled.result.notes)


def test_the_fastest_is_kept_and_remembered(timed: list[int], tmp_path: Path) -> None:
    chosen, note = settings(tmp_path, 600)
    assert chosen == {"loop-grain": 30000} and "loop-grain 30000 (1.20 times as fast)" in note
    assert timed == [2]
    assert settings(tmp_path, 600)[0] == chosen and timed == [2]


def test_when_the_time_is_over_nothing_is_remembered(timed: list[int], tmp_path: Path) -> None:
    chosen, note = settings(tmp_path, 0)
    assert chosen == {} and "before the time ran out" in note and timed == []
    assert settings(tmp_path, 600)[0] == {"loop-grain": 30000}


def test_an_artifact_says_what_was_chosen() -> None:
    from smelt.cli import inspect

    assert "tuned: chain-rows 14, loop-grain 5000" in inspect._manifest_lines(
        {"settings": {"loop-grain": 5000, "chain-rows": 14}}
    )
