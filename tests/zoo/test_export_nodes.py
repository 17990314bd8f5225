"""Exported graphs have no more nodes than torch's own exporter gives."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import export_nodes  # noqa: E402

# Counts of torch.onnx.export(dynamo=True, optimize=True); `bench/export_nodes.py` prints them.
TORCH = {
    "distilbert": 115, "bert": 123, "mobilebert": 208, "xlm-roberta": 131, "gpt2": 137, "deberta": 108,
    "deberta-v2": 96, "bart": 293, "squeezebert": 92, "ernie": 123, "vit": 99, "llama": 172, "t5": 347, "qwen2": 178,
}  # fmt: skip


@pytest.mark.parametrize("name", ["vit", "llama"])
def test_a_model_has_no_more_nodes_than_torch_gives_it(name: str):
    assert export_nodes.by_smelt(name) <= TORCH[name]


@pytest.mark.full
@pytest.mark.parametrize("name", export_nodes.MODELS)
def test_every_model_has_no_more_nodes_than_torch_gives_it(name: str):
    assert export_nodes.by_smelt(name) <= export_nodes.by_torch(name)
