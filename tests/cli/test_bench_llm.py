"""`smelt bench --llm`: a folder of onnxruntime-genai as given and compiled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from smelt.bench.llm_gguf import write_gguf
from smelt.frontends.gguf_folder import build_gguf_folder


def test_a_folder_is_timed_as_given_and_compiled(call: Any, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime_genai", reason="onnxruntime-genai runs the folders")
    pytest.importorskip("gguf", reason="the package gguf writes the file")
    write_gguf("tiny-llama", tmp_path / "m.gguf", "Q4_0")
    folder = build_gguf_folder(tmp_path / "m.gguf", tmp_path, "", "exact")
    ran = call("bench", "--llm", folder, "--seq", "5,20", "--threads", "1", "--rounds", "2", "--json")
    assert ran.code == 0, ran.err
    rows = json.loads(ran.out)["rows"]
    assert [(row["name"], row["prompt"]) for row in rows] == [("stock", 5), ("smelt", 5), ("stock", 20), ("smelt", 20)]
    assert all(row["same_tokens"] == row["answer"] and row["decode_rate"] > 0 for row in rows)


def test_one_thing_is_timed_at_a_time(call: Any, tmp_path: Path) -> None:
    ran = call("bench", "--llm", tmp_path, "--model", "qwen2-0.5b")
    assert ran.code != 0 and "--llm" in ran.err
    ran = call("bench", "--llm", tmp_path, "--plot", tmp_path / "x.html")
    assert ran.code != 0 and ".png" in ran.err


def test_quality_is_told_beside_the_float32_model(call: Any, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime_genai", reason="onnxruntime-genai runs the folders")
    pytest.importorskip("transformers", reason="the float32 model")
    from smelt.bench.llm_models import write_model

    write_model("tiny-qwen2", tmp_path / "hf")
    (tmp_path / "text.md").write_text("the thin thread that thinks " * 2)
    ran = call("bench", "--llm", tmp_path / "hf", "--quality", tmp_path / "text.md", "--json")
    assert ran.code == 0, ran.err
    rows = {row["name"]: row for row in json.loads(ran.out)["rows"]}
    assert list(rows) == ["float32", "stock, exact", "smelt, exact", "stock, fast", "smelt, fast"]
    assert rows["float32"]["divergence"] == 0 and rows["float32"]["same_top"] == 1
    assert rows["smelt, exact"]["of_arithmetic"] < 1e-9 < rows["smelt, fast"]["of_arithmetic"]
    assert 0 < rows["smelt, fast"]["divergence"] < 2 * rows["stock, fast"]["divergence"]
    assert all(row["tokens"] > 40 and 200 < row["perplexity"] < 1000 for row in rows.values())


def test_quality_needs_a_hugging_face_folder_and_a_text(call: Any, tmp_path: Path) -> None:
    ran = call("bench", "--llm", tmp_path, "--quality", tmp_path / "text.md")
    assert ran.code != 0 and "Hugging Face" in ran.err
    (tmp_path / "config.json").write_text("{}")
    ran = call("bench", "--llm", tmp_path, "--quality", tmp_path / "text.md")
    assert ran.code != 0 and "cannot be read" in ran.err
