"""Folders of onnxruntime-genai: compiled in place of their decoder, everything else as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from smelt.base.errors import LoadError
from smelt.frontends.genai_folder import decoder_of
from smelt.runtime import Executable

CONFIG = {"model": {"decoder": {"filename": "decoder.onnx", "session_options": {"log_id": "x"}}, "type": "llama"}}


@pytest.fixture
def folder(model_path: Path, tmp_path: Path) -> Path:
    """A model with its weights outside, a tokenizer and a template."""
    made = tmp_path / "in"
    (made / "templates").mkdir(parents=True)
    outside = {"save_as_external_data": True, "location": "decoder.weights", "size_threshold": 0}
    onnx.save(onnx.load(model_path), made / "decoder.onnx", **outside)
    (made / "genai_config.json").write_text(json.dumps(CONFIG))
    (made / "tokenizer.json").write_text("{}")
    (made / "templates" / "chat.txt").write_text("hello")
    return made


def test_the_decoder_is_replaced_and_the_rest_kept(call: Any, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for _ in range(2):  # the second replaces the first
        ran = call("compile", folder, "--force", "-o", out)
        assert ran.code == 0, ran.err
    config = json.loads((out / "genai_config.json").read_text())
    decoder = config["model"]["decoder"]
    assert decoder["filename"] == "model.onnx" and decoder["session_options"]["log_id"] == "x"
    assert (out / decoder["session_options"]["custom_ops_library"]).is_file()
    assert (out / "tokenizer.json").is_file() and (out / "templates" / "chat.txt").read_text() == "hello"
    assert not (out / "decoder.weights").exists() and not (out / "decoder.onnx").exists()
    (y,) = Executable.open(out).run({"x": np.ones((3, 8), np.float32)})
    assert y.shape == (3, 8)


@pytest.mark.parametrize("name", ["../decoder.onnx", "/etc/passwd", "", "absent.onnx", 7])
def test_files_outside_or_absent_are_refused(folder: Path, name: object) -> None:
    config = {"model": {"decoder": {"filename": name}}}
    (folder / "genai_config.json").write_text(json.dumps(config))
    with pytest.raises(LoadError, match="genai_config"):
        decoder_of(folder)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"model": 3}', '{"model": {"decoder": []}}'])
def test_other_configurations_are_refused(folder: Path, text: str) -> None:
    (folder / "genai_config.json").write_text(text)
    with pytest.raises(LoadError, match="genai_config"):
        decoder_of(folder)


def test_a_folder_without_a_tokenizer_is_refused_and_nothing_written(call: Any, folder: Path, tmp_path: Path) -> None:
    (folder / "tokenizer.json").unlink()
    ran = call("compile", folder, "-o", tmp_path / "out")
    assert ran.code != 0 and "SM-LOAD-009" in ran.err and "tokenizer" in ran.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["../x.so", "/lib/x.so", "a/../../x.so", "..\\x.so"])
@pytest.mark.parametrize("place", ["session_options", "pipeline"])
def test_files_outside_are_refused_anywhere(call: Any, folder: Path, tmp_path: Path, name: str, place: str) -> None:
    decoder: dict[str, Any] = {"filename": "decoder.onnx"}
    decoder[place] = {"custom_ops_library": name} if place == "session_options" else [{"part": {"filename": name}}]
    (folder / "genai_config.json").write_text(json.dumps({"model": {"decoder": decoder}}))
    ran = call("compile", folder, "-o", tmp_path / "out")
    assert ran.code != 0 and "SM-LOAD-009" in ran.err
    assert not (tmp_path / "out").exists()
