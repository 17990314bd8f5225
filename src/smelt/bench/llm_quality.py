"""How near the next-token distributions of compiled folders are to those of the float32 model, on a text.

Input: a Hugging Face folder, folders of onnxruntime-genai made from it, by name, and tokens. Output: a `QualityRow` for
the float32 model and each folder. Invariant: all are fed the text's own tokens, one by one, in windows of one length;
the first folder is the yardstick for arithmetic: the same blocks of weights, computed by stock in float32.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from smelt.base import child_environment

Array = np.ndarray[Any, Any]
FLOAT32: Final = "float32"
WINDOW: Final = 256


@dataclass(frozen=True)
class QualityRow:
    """Divergences are means over the text in nats: from the float32 model, and from the first folder."""

    name: str
    tokens: int
    perplexity: float
    divergence: float
    of_arithmetic: float
    same_top: float


@dataclass
class _Sums:
    surprise: float = 0.0
    divergence: float = 0.0
    of_arithmetic: float = 0.0
    same_top: int = 0
    tokens: int = 0

    def add(self, own: Array, reference: Array, first: Array, following: int) -> None:
        self.surprise -= float(own[following])
        self.divergence += divergence(reference, own)
        self.of_arithmetic += divergence(first, own)
        self.same_top += int(own.argmax() == reference.argmax())
        self.tokens += 1

    def row(self, name: str) -> QualityRow:
        n = max(1, self.tokens)
        perplexity = float(np.exp(self.surprise / n))
        return QualityRow(name, self.tokens, perplexity, self.divergence / n, self.of_arithmetic / n, self.same_top / n)


def log_probabilities(logits: Array) -> Array:
    wide = logits.astype(np.float64).ravel()
    wide -= wide.max()
    return wide - np.log(np.exp(wide).sum())


def divergence(reference: Array, other: Array) -> float:
    """Kullback and Leibler's, of log-probabilities."""
    return float(np.sum(np.exp(reference) * (reference - other)))


def measure_quality(source: Path, folders: Mapping[str, Path], tokens: Sequence[int]) -> list[QualityRow]:
    """`source` is the Hugging Face folder."""
    workers = {name: _Genai(path) for name, path in folders.items()}
    try:
        return _measured({FLOAT32: _Float32(source), **workers}, next(iter(folders)), tokens)
    finally:
        for one in workers.values():
            one.close()


def _measured(models: Mapping[str, Any], first: str, tokens: Sequence[int]) -> list[QualityRow]:
    sums = {name: _Sums() for name in models}
    for window in _windows(tokens):
        answers = [model.answers(window[:-1]) for model in models.values()]
        for *logits, following in zip(*answers, window[1:], strict=True):
            made = {name: log_probabilities(one) for name, one in zip(models, logits, strict=True)}
            for name, own in made.items():
                sums[name].add(own, made[FLOAT32], made[first], following)
    return [one.row(name) for name, one in sums.items()]


def _windows(tokens: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(tokens) - 1, WINDOW):
        yield tokens[start : start + WINDOW + 1]


@dataclass
class _Float32:
    """The model as it was trained, by torch."""

    source: Path
    model: Any = field(init=False)

    def __post_init__(self) -> None:
        transformers: Any = import_module("transformers")
        torch: Any = import_module("torch")
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            self.source, dtype=torch.float32, local_files_only=True, trust_remote_code=False
        ).eval()

    def answers(self, tokens: Sequence[int]) -> Array:
        torch: Any = import_module("torch")
        with torch.no_grad():
            return self.model(torch.tensor([list(tokens)])).logits[0].numpy()


class _Genai:
    """A folder in stock onnxruntime-genai, whose library is not loaded beside onnxruntime's."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-P", str(Path(__file__).with_name("llm_logits_worker.py")), str(folder)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=child_environment({"OMP_NUM_THREADS": "1"})
        )

    def answers(self, tokens: Sequence[int]) -> Array:
        asked, told = self._process.stdin, self._process.stdout
        assert asked is not None and told is not None
        asked.write(json.dumps(list(tokens)).encode() + b"\n")
        asked.flush()
        line = told.readline()
        if not line:
            raise RuntimeError(f"onnxruntime-genai ended with exit code {self._process.wait()}")
        shape = json.loads(line)
        return np.frombuffer(told.read(4 * shape[0] * shape[1]), np.float32).reshape(shape)

    def close(self) -> None:
        self._process.communicate(timeout=60)


def tokens_of(source: Path, text: str, most: int) -> list[int]:
    """The text by the folder's own tokenizer, its first `most` tokens."""
    transformers: Any = import_module("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(source, local_files_only=True, trust_remote_code=False)
    return list(tokenizer(text)["input_ids"])[:most]


def as_facts(rows: Sequence[QualityRow]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]


def to_table(rows: Sequence[QualityRow]) -> list[tuple[str, ...]]:
    """Heads, then a line for each row."""
    heads = ("folder", "tokens", "perplexity", "KL from float32", "KL of arithmetic", "same top token")
    return [heads, *(_cells(row) for row in rows)]


def _cells(row: QualityRow) -> tuple[str, ...]:
    arithmetic = "-" if row.name == FLOAT32 else f"{row.of_arithmetic:.2e}"
    return (
        row.name, str(row.tokens), f"{row.perplexity:.4f}", f"{row.divergence:.2e}", arithmetic, f"{row.same_top:.2%}",
    )  # fmt: skip
