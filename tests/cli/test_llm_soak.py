"""2,000 requests of random lengths to a model of ten million parameters: the tokens of stock, and flat memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smelt.bench.llm_gguf import write_gguf
from smelt.frontends.gguf_folder import build_gguf_folder

genai: Any = pytest.importorskip("onnxruntime_genai", reason="onnxruntime-genai runs the folder")
pytest.importorskip("gguf", reason="the package gguf writes the model")

REQUESTS, WARM = 2000, 300
GROWTH_BYTES = 8 << 20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def answer(model: Any, prompt: np.ndarray, count: int) -> list[int]:
    params = genai.GeneratorParams(model)
    length = len(prompt) + count
    params.set_search_options(max_length=length, min_length=length, do_sample=False)
    generator = genai.Generator(model, params)
    generator.append_tokens(prompt[None])
    while not generator.is_done():
        generator.generate_next_token()
    return [int(token) for token in generator.get_sequence(0)][len(prompt) :]


@pytest.mark.full
def test_many_requests(call: Any, tmp_path: Path) -> None:
    write_gguf("qwen2-10m", tmp_path / "m.gguf", "Q4_0")
    stock = genai.Model(str(build_gguf_folder(tmp_path / "m.gguf", tmp_path, "", "exact")))
    ran = call("compile", tmp_path / "m.gguf", "--force", "--no-timing", "-o", tmp_path / "out")
    assert ran.code == 0, ran.err
    ours, rng, before = genai.Model(str(tmp_path / "out")), np.random.default_rng(0), 0
    for request in range(REQUESTS):
        prompt = rng.integers(3, 4096, rng.integers(1, 100)).astype(np.int32)
        count = int(rng.integers(1, 40))
        assert answer(ours, prompt, count) == answer(stock, prompt, count), f"request {request}"
        if request == WARM:
            before = resident_bytes()
    assert resident_bytes() - before < GROWTH_BYTES
