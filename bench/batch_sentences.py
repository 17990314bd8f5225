"""Sentences through `smelt.batch`, the same pipeline with stock ONNX Runtime, and Sentence Transformers.

    python bench/batch_sentences.py FOLDER [--sentences 5000] [--rounds 2] [--threads 2] [--artifact DIR]

FOLDER holds a SentenceTransformer. Contestants take turns; a time is a whole run from Parquet to Parquet, with the
start of its worker processes (of Sentence Transformers: `encode` alone, its model loaded before), and a second one
counts from its first rows on. Prints the largest difference, and ratios with 95% intervals of their mean.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from sentence_transformers import SentenceTransformer

import smelt


def sentences(vocabulary: Path, count: int) -> list[str]:
    random = np.random.default_rng(1)
    lines = vocabulary.read_text(encoding="utf-8").splitlines()
    words = [word for word in lines if word.isalpha() and len(word) > 2][:12000]
    lengths = np.clip(random.lognormal(2.7, 0.5, count).astype(int), 3, 90)
    return [" ".join(random.choice(words, length)) for length in lengths]


def interval(ratios: list[float]) -> str:
    logs = np.log(ratios)
    half = 1.96 * logs.std(ddof=1) / np.sqrt(len(logs)) if len(logs) > 1 else float("nan")
    return f"{np.exp(logs.mean()):.2f} [{np.exp(logs.mean() - half):.2f}, {np.exp(logs.mean() + half):.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sentences", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--artifact", type=Path, help="compiled before; otherwise the first run compiles")
    parser.add_argument("--stock", type=Path, help="the same model as a plain ONNX file")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    texts = sentences(given.folder / "vocab.txt", given.sentences)
    model = SentenceTransformer(str(given.folder), device="cpu")
    work = Path(tempfile.mkdtemp())
    pq.write_table(pa.table({"text": texts}), work / "in.parquet", row_group_size=5000)
    options = {"tokenizer": given.folder, "keep": [], "batch": 32, "workers": given.workers}
    options["threads"] = given.threads // given.workers
    times: dict[str, list[float]] = {name: [] for name in ("batch", "warm batch", "encode", "stock", "warm stock")}
    difference = 0.0
    for round_ in range(given.rounds):
        started = time.perf_counter()
        report = smelt.batch(given.artifact or given.folder, work / "in.parquet", work / f"out{round_}", **options)
        times["batch"].append(time.perf_counter() - started)
        times["warm batch"].append(report.seconds - report.seconds_to_first_rows)
        started = time.perf_counter()
        wanted = model.encode(texts, batch_size=32, show_progress_bar=False)
        times["encode"].append(time.perf_counter() - started)
        if given.stock:
            started = time.perf_counter()
            report = smelt.batch(given.stock, work / "in.parquet", work / f"stock{round_}", stock=True, **options)
            times["stock"].append(time.perf_counter() - started)
            times["warm stock"].append(report.seconds - report.seconds_to_first_rows)
        column = pq.read_table(work / f"out{round_}").column(0)
        made = np.array(column.to_pylist(), np.float32)
        difference = max(difference, float(np.abs(made - wanted).max()))
        print({name: [round(one, 2) for one in seconds] for name, seconds in times.items()}, difference, flush=True)
    shutil.rmtree(work)
    print(f"largest difference {difference:.1e} over {given.sentences} sentences")
    pairs = (("encode", "batch"), ("stock", "batch"), ("encode", "warm batch"), ("warm stock", "warm batch"))
    for name, ours in pairs:
        if times[name]:
            ratios = [a / b for a, b in zip(times[name], times[ours], strict=True)]
            print(f"{name}: {interval(ratios)} times the time of {ours}")


if __name__ == "__main__":
    main()
