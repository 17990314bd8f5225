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
                expected = module(*(torch.from_numpy(array) for array in feeds.values())).numpy()
            assert relative_error(session.run(None, feeds)[0], expected) < 2e-5
            assert relative_error(fast.run(feeds)[0], expected) < 2e-5
