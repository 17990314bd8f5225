"""One artifact, many shapes: right answers, nothing compiled again, flat memory."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import smelt
from smelt.base import Config
from smelt.bench import zoo

for package in ("torch", "transformers", "onnxscript"):
    pytest.importorskip(package)

LARGEST = (6, 96)


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def random_shapes(count: int) -> list[tuple[int, int]]:
    rng = np.random.default_rng(7)
    return [(int(rng.integers(1, LARGEST[0] + 1)), int(rng.integers(2, LARGEST[1] + 1))) for _ in range(count)]


def run_shapes(config: Config, name: str, count: int, allowed_growth_bytes: int) -> None:
    path = zoo.export(name, config, "tiny")
    stock = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    with smelt.compile(path, config=config) as fast:
        assert fast.coverage.in_kernels > fast.coverage.nodes // 2
        before = sorted(p.name for p in config.cache_dir.rglob("*.so"))
        shapes = [LARGEST, *random_shapes(count)]
        settled = 0
        for place, (batch, length) in enumerate(shapes):
            feeds = zoo.feeds(name, batch, length, "tiny", seed=place)
            feeds["attention_mask"][:, length // 2 :] = place % 2
            expected, found = stock.run(None, feeds)[0], fast.run(feeds)[0]
            assert found.shape == expected.shape
            error = np.abs(found - expected) / (np.abs(expected) + np.sqrt(np.mean(expected**2)))
            assert error.max() < 2e-5, (batch, length)
            if place == len(shapes) // 4:
                settled = resident_bytes()
        assert resident_bytes() - settled < allowed_growth_bytes
        assert sorted(p.name for p in config.cache_dir.rglob("*.so")) == before


def test_twenty_shapes_through_one_artifact(config: Config):
    run_shapes(config, "bert-base", 20, allowed_growth_bytes=16 << 20)


@pytest.mark.full
@pytest.mark.parametrize("name", ["bert-base", "distilbert", "mobilebert", "gpt2", "deberta"])
def test_two_hundred_shapes_through_one_artifact(config: Config, name: str):
    run_shapes(config, name, 200, allowed_growth_bytes=16 << 20)
