"""Sentences through `smelt.batch`, the same pipeline with stock ONNX Runtime, and Sentence Transformers' `encode`.

    python bench/batch_sentences.py FOLDER WORK [--sentences 2000] [--rounds 8] [--threads 2] [--workers 1]
    python bench/batch_sentences.py FOLDER WORK --commands [--sentences 20000] [--rounds 1]

FOLDER holds a SentenceTransformer; WORK keeps the artifact and the exported ONNX file for the next run. Everybody reads
sentences from Parquet and writes embeddings to Parquet, in batches of 32, one after the other. Three times:

    loaded     from where the model is loaded: `encode` in this process, a run from its first worker's readiness on
    call       the same, and of `smelt.batch` the whole call, which starts two processes and loads the model twice
    command    (--commands) whole processes: `smelt batch`, and a script that imports, loads and encodes

Prints the largest difference of all embeddings, and ratios of times over rounds in which others left the CPUs alone.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from quiet_rounds import QUIET, watched

BATCH = 32


def sentences(vocabulary: Path, count: int) -> list[str]:
    """Words of the tokenizer's own vocabulary: 3 to 90 a sentence, 17 on average."""
    random = np.random.default_rng(1)
    lines = vocabulary.read_text(encoding="utf-8").splitlines()
    words = [word for word in lines if word.isalpha() and len(word) > 2][:12000]
    lengths = np.clip(random.lognormal(2.7, 0.5, count).astype(int), 3, 90)
    return [" ".join(random.choice(words, length)) for length in lengths]


def load(folder: Path, threads: int) -> Any:
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    return SentenceTransformer(str(folder), device="cpu")


def encode(model: Any, source: Path, target: Path) -> None:
    texts = pq.read_table(source).column("text").to_pylist()
    made = model.encode(texts, batch_size=BATCH, show_progress_bar=False)
    cells = pa.FixedSizeListArray.from_arrays(pa.array(made.reshape(-1)), made.shape[1])
    pq.write_table(pa.table({"sentence_embedding": cells}), target, use_dictionary=False)


def embeddings(place: Path) -> np.ndarray:
    cells = pq.read_table(place).column("sentence_embedding").combine_chunks()
    return cells.flatten().to_numpy().reshape(len(cells), -1)


class Contest:
    """Who takes part, and what it took them."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.source = given.work / "in.parquet"
        self.times: dict[str, list[float]] = {}
        self.others: list[float] = []
        self.difference = 0.0

    def took(self, name: str, seconds: float) -> None:
        self.times.setdefault(name, []).append(seconds)

    def out(self, name: str) -> Path:
        place = self.given.work / name
        shutil.rmtree(place, ignore_errors=True)
        return place

    def compare(self) -> None:
        wanted = embeddings(self.given.work / "encoded.parquet")
        for name in ("smelt", "stock"):
            self.difference = max(self.difference, float(np.abs(embeddings(self.given.work / name) - wanted).max()))

    def settings(self) -> dict[str, Any]:
        workers = self.given.workers
        return {"batch": BATCH, "workers": workers, "threads": max(1, self.given.threads // workers)}

    def ratio(self, slow: str, fast: str) -> str:
        from smelt.bench import paired_ratio

        quiet = [place for place, share in enumerate(self.others) if share <= QUIET] or range(len(self.others))
        found = paired_ratio(*([self.times[name][place] for place in quiet] for name in (slow, fast)))
        lowest = min(self.times[slow][place] / self.times[fast][place] for place in quiet)
        interval = f" [{found.low:.2f}, {found.high:.2f}]" if found.rounds > 5 else f" (lowest {lowest:.2f})"
        return f"{slow} / {fast}: {found.value:.2f}{interval}, {found.rounds} rounds"


class Calls(Contest):
    """In this process, models loaded before."""

    def __init__(self, given: argparse.Namespace) -> None:
        super().__init__(given)
        self.model = load(given.folder, given.threads)

    def round(self) -> None:
        import smelt

        options = {"tokenizer": self.given.folder, "keep": [], **self.settings()}
        for name, model in (
            ("smelt", self.given.work / "artifact"),
            ("stock", self.given.work / "exported/model.onnx"),
        ):
            out = self.out(name)
            started = time.perf_counter()
            report = smelt.batch(model, self.source, out, stock=name == "stock", **options)
            self.took(f"{name} call", time.perf_counter() - started)
            self.took(f"{name} loaded", report.seconds - report.seconds_to_ready)
        started = time.perf_counter()
        encode(self.model, self.source, self.given.work / "encoded.parquet")
        self.took("encode", time.perf_counter() - started)

    def ratios(self) -> list[str]:
        pairs = (("encode", "smelt loaded"), ("encode", "smelt call"), ("stock loaded", "smelt loaded"),
                 ("stock call", "smelt call"))  # fmt: skip
        return [self.ratio(*pair) for pair in pairs]


class Commands(Contest):
    """Whole processes."""

    def round(self) -> None:
        options = [part for name, value in self.settings().items() for part in (f"--{name}", str(value))]
        shared = ["-i", self.source, "--tokenizer", self.given.folder, "--keep", "", "-q", *options]
        batch = [sys.executable, "-m", "smelt", "batch"]
        self.run("smelt", [*batch, self.given.work / "artifact", "-o", self.out("smelt"), *shared])
        stock = [*batch, self.given.work / "exported/model.onnx", "--stock", "-o", self.out("stock"), *shared]
        self.run("stock", stock)
        target = self.given.work / "encoded.parquet"
        script = [sys.executable, __file__, self.given.folder, self.given.work, "--encode", target]
        self.run("encode", [*script, "--threads", str(self.given.threads)])

    def run(self, name: str, command: list[Any]) -> None:
        started = time.perf_counter()
        subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
        self.took(name, time.perf_counter() - started)

    def ratios(self) -> list[str]:
        return [self.ratio("encode", "smelt"), self.ratio("stock", "smelt")]


def prepare(given: argparse.Namespace) -> None:
    """Compile and export once."""
    import smelt

    given.work.mkdir(parents=True, exist_ok=True)
    few = given.work / "few.parquet"
    pq.write_table(pa.table({"text": ["a sentence", "another one"]}), few)
    for name, made, stock in (("artifact", "model", False), ("exported", "stock", True)):
        if not (given.work / name).exists():
            smelt.batch(given.folder, few, given.work / "once", restart=True, stock=stock)
            shutil.move(given.work / "once" / "_smelt" / made, given.work / name)
            shutil.rmtree(given.work / "once")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--commands", action="store_true")
    parser.add_argument("--prepare", action="store_true", help="compile and export, and nothing else")
    parser.add_argument("--encode", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.encode:
        encode(load(given.folder, given.threads), given.work / "in.parquet", given.encode)
        return
    prepare(given)
    if given.prepare:
        return
    texts = sentences(given.folder / "vocab.txt", given.sentences)
    pq.write_table(pa.table({"text": texts}), given.work / "in.parquet", row_group_size=5000)
    contest = Commands(given) if given.commands else Calls(given)
    for _ in range(given.rounds):
        _, others = watched(contest.round)
        contest.others.append(others)
        contest.compare()
        times = {name: round(seconds[-1], 2) for name, seconds in contest.times.items()}
        print(times, f"others used {others:.0%} of the CPUs", flush=True)
    print(f"largest difference {contest.difference:.1e} over {given.sentences} sentences")
    print("\n".join(contest.ratios()))


if __name__ == "__main__":
    main()
