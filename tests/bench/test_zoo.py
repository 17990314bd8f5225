"""The zoo's files compute what their torch modules do."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest

import smelt
from smelt.base import Config, SmeltError
from smelt.bench import zoo

for package in ("torch", "transformers", "onnxscript"):
    pytest.importorskip(package)


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.max(np.abs(found - expected) / (np.abs(expected) + np.sqrt(np.mean(expected**2)))))


def test_names_of_the_hub_are_understood():
    assert zoo.find_model("google/mobilebert-uncased").name == "mobilebert"
    with pytest.raises(SmeltError, match="gpt2"):
        zoo.find_model("gtp2")


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("distilbert-base-uncased", "distilbert"),
        ("csarron/mobilebert-uncased-squad-v2", "mobilebert-squad"),
        ("lordtt13/emo-mobilebert", "mobilebert-emo"),
        ("microsoft/resnet-50", "resnet-50"),
        ("google/mobilenet_v2_1.0_224", "mobilenet-v2"),
        ("facebook/convnext-tiny-224", "convnext-tiny"),
        ("openai-community/gpt2", "gpt2"),
    ],
)
def test_models_are_found_by_the_names_that_users_know(spelled: str, name: str):
    assert zoo.find_model(spelled).name == name


def test_every_suite_names_models_that_exist():
    assert {name for names in zoo.SUITES.values() for name in names} <= set(zoo.ZOO)


def test_a_decoder_is_fed_its_past_and_a_mask_over_all_tokens():
    fed = zoo.feeds("llama-decode", 3, 31, "tiny")
    assert fed["input_ids"].shape == (3, 1)
    assert fed["attention_mask"].shape == (3, 32)
    assert fed["past_key_values.1.value"].shape == (3, 2, 31, 8)


def test_feeds_are_the_same_each_time_and_in_the_vocabulary():
    one, other = zoo.feeds("bert-base", 2, 9, "tiny"), zoo.feeds("bert-base", 2, 9, "tiny")
    np.testing.assert_array_equal(one["input_ids"], other["input_ids"])
    assert one["input_ids"].shape == (2, 9)
    assert one["input_ids"].max() < 99


@pytest.mark.full
@pytest.mark.parametrize("name", zoo.ZOO)
def test_file_module_and_compiled_model_agree_at_two_sizes(config: Config, name: str):
    import torch

    path, module = zoo.export(name, config, "tiny"), zoo.module(name, "tiny")
    assert zoo.export(name, config, "tiny") == path
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    with smelt.compile(path, config=config) as fast:
        for batch, length in ((1, 31), (3, 16)):
            feeds = zoo.feeds(name, batch, length, "tiny")
            with torch.no_grad():
                found = module(*(torch.from_numpy(array) for array in feeds.values()))
            expected = [tensor.numpy() for tensor in (found if isinstance(found, tuple) else [found])]
            for results in (session.run(None, feeds), fast.run(feeds)):
                errors = [relative_error(ours, theirs) for ours, theirs in zip(results, expected, strict=True)]
                assert max(errors) < 2e-5


@pytest.mark.full
@pytest.mark.parametrize("name", ["gpt2-decode", "llama-decode"])
def test_a_prompt_and_single_tokens_through_one_artifact_are_the_whole_sequence_at_once(config: Config, name: str):
    path = zoo.export(name, config, "tiny")
    tokens = np.random.default_rng(3).integers(5, 99, (2, 12))

    def step(past: list[np.ndarray], new: np.ndarray) -> list[np.ndarray]:
        names = zoo.find_model(name).input_names("tiny")
        mask = np.ones((2, past[0].shape[2] + new.shape[1]), np.int64)
        return fast.run(dict(zip(names, [new, mask, *past], strict=True)))

    with smelt.compile(path, config=config) as fast:
        empty = zoo.feeds(name, 2, 0, "tiny")
        nothing = [array for key, array in empty.items() if key.startswith("past")]
        at_once = step(nothing, tokens)[0]
        logits, *past = step(nothing, tokens[:, :7])
        parts = [logits]
        for place in range(7, 12):
            logits, *past = step(past, tokens[:, place : place + 1])
            parts.append(logits)
        assert relative_error(np.concatenate(parts, axis=1), at_once) < 2e-5
