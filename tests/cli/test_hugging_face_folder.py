"""Hugging Face folders of language models: built by onnxruntime-genai, compiled, run by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from smelt.base.errors import ConfigError, LoadError
from smelt.frontends import genai_builder
from smelt.frontends.genai_builder import build_folder, check_hugging_face

SIZES = {
    "vocab_size": 260, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A folder that has everything by name."""
    made = tmp_path / "in"
    made.mkdir()
    (made / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    (made / "model.safetensors").write_bytes(b"")
    (made / "tokenizer.json").write_text("{}")
    return made


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_an_incomplete_folder_is_refused_before_anything_is_written(
    call: Any, empty: Path, tmp_path: Path, name: str
) -> None:
    (empty / name).unlink()
    ran = call("compile", empty, "--precision", "w4", "-o", tmp_path / "out")
    assert ran.code != 0 and "SM-LOAD-009" in ran.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_configuration_that_cannot_be_read(empty: Path, text: str) -> None:
    (empty / "config.json").write_text(text)
    with pytest.raises(LoadError, match=r"config\.json") as caught:
        check_hugging_face(empty)
    assert caught.value.code == "SM-LOAD-009"


@pytest.mark.parametrize("names", ['{"architectures": 3}', "{}", '{"architectures": []}', '{"architectures": [1]}'])
def test_a_configuration_without_an_architecture(empty: Path, names: str) -> None:
    (empty / "config.json").write_text(names)
    with pytest.raises(LoadError, match="no architecture") as caught:
        check_hugging_face(empty)
    assert caught.value.code == "SM-LOAD-010"


def test_the_missing_package_is_named(empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(genai_builder, "find_spec", lambda name: None if name == "onnxruntime_genai" else object())
    with pytest.raises(LoadError, match="onnxruntime_genai is missing") as caught:
        build_folder(empty, tmp_path, "w4", "exact")
    assert caught.value.code == "SM-LOAD-011" and "onnx-smelt[genai]" in caught.value.hint


@pytest.mark.parametrize(("precision", "accuracy"), [("w3", "exact"), ("w4", "w3")])
def test_unknown_choices_are_refused(empty: Path, tmp_path: Path, precision: str, accuracy: str) -> None:
    with pytest.raises(ConfigError, match="w3"):
        build_folder(empty, tmp_path, precision, accuracy)


def test_an_unknown_architecture_is_refused_in_the_builders_words(empty: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime_genai", reason="onnxruntime-genai builds the folder")
    (empty / "config.json").write_text(json.dumps({"architectures": ["NoSuchModel"], "model_type": "no_such"}))
    with pytest.raises(LoadError, match="NoSuchModel") as caught:
        build_folder(empty, tmp_path, "w4", "exact")
    assert caught.value.code == "SM-LOAD-010"


def test_a_builder_that_does_not_end_is_ended(empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(genai_builder, "find_spec", lambda name: object())
    monkeypatch.setattr(genai_builder, "LIMIT_S", 0.3)
    monkeypatch.setattr(genai_builder, "_command", lambda *_: ("/bin/sleep", "60"))
    with pytest.raises(LoadError, match="took more than") as caught:
        build_folder(empty, tmp_path, "w4", "exact")
    assert caught.value.code == "SM-LOAD-010"


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    import transformers
    from tokenizers import Tokenizer, models

    made = tmp_path_factory.mktemp("llama")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES)
    transformers.LlamaForCausalLM(config).save_pretrained(made)
    names = {"<pad>": 0, "<s>": 1, "</s>": 2} | {f"t{i}": i for i in range(3, 260)}
    tokenizer = Tokenizer(models.BPE(vocab=names, merges=[]))
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(made)
    return made


def test_the_compiled_folder_generates_the_tokens_of_the_built_one(call: Any, llama: Path, tmp_path: Path) -> None:
    genai: Any = pytest.importorskip("onnxruntime_genai", reason="onnxruntime-genai builds and runs the folder")
    ran = call("compile", llama, "--precision", "w4", "--force", "--no-timing", "-o", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert (tmp_path / "out" / "tokenizer.json").is_file()
    stock = build_folder(llama, tmp_path, "w4", "exact")
    for prompt in ([5, 9, 200, 31], [7]):
        expected = greedy(genai, stock, prompt)
        assert len(expected) > len(prompt) and greedy(genai, tmp_path / "out", prompt) == expected
    check_sizes(stock, tmp_path / "out")


def greedy(genai: Any, folder: Path, prompt: list[int]) -> list[int]:
    model = genai.Model(str(folder))
    params = genai.GeneratorParams(model)
    params.set_search_options(max_length=40, do_sample=False)
    generator = genai.Generator(model, params)
    generator.append_tokens(np.array([prompt], np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return [int(token) for token in generator.get_sequence(0)]


def check_sizes(stock: Path, compiled: Path) -> None:
    """One token and several sequences as stock has them; no sequence gives no logits; no token is an error."""
    options = ort.SessionOptions()
    section = json.loads((compiled / "genai_config.json").read_text())["model"]["decoder"]["session_options"]
    options.register_custom_ops_library(str(compiled / section["custom_ops_library"]))
    ours: Any = ort.InferenceSession(str(compiled / "model.onnx"), options)
    theirs: Any = ort.InferenceSession(str(stock / "model.onnx"))
    for sizes in ((1, 1), (2, 3)):
        for expected, got in zip(theirs.run(None, feeds(*sizes)), ours.run(None, feeds(*sizes)), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    assert ours.run(None, feeds(0, 3))[0].shape == (0, 1, SIZES["vocab_size"])  # stock divides by zero and ends
    with pytest.raises(Exception, match="INVALID_ARGUMENT"):
        ours.run(None, feeds(1, 0))


def feeds(batch: int, length: int) -> dict[str, Any]:
    made: dict[str, Any] = {
        "input_ids": np.full((batch, length), 5, np.int64),
        "attention_mask": np.ones((batch, length), np.int64),
    }
    for layer in range(SIZES["num_hidden_layers"]):
        for kind in ("key", "value"):
            made[f"past_key_values.{layer}.{kind}"] = np.zeros((batch, 2, 0, 16), np.float32)
    return made
