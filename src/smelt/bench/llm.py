"""Language models in onnxruntime-genai: how fast folders answer, side by side.

Input: folders by name, the first of which is the baseline; lengths of prompts and the number of threads. Output:
`LlmRow`s. Invariant: each folder runs in a process of its own, and rounds go through all of them; a share is of the
bytes that a token reads (the weights' file, and keys and values) over the read bandwidth measured in the run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, cast

from smelt.base import child_environment
from smelt.bench.paired import Ratio, paired_ratio


@dataclass(frozen=True)
class LlmRow:
    """Ratios are None for the baseline. `same_tokens`: how many of the first tokens are those of the baseline."""

    name: str
    threads: int
    prompt: int
    prefill_rate: float
    decode_rate: float
    first_token_ms: float
    peak_mb: float
    read_share: float
    same_tokens: int
    answer: int
    prefill: Ratio | None = None
    decode: Ratio | None = None


@dataclass(frozen=True)
class Measured:
    """The answers of one process to the same request, a round each."""

    first_s: list[float]
    step_s: list[float]
    peak_bytes: int
    tokens: list[int]


def measure(
    folders: Mapping[str, Path], prompts: Sequence[int], threads: int, *, answer: int, rounds: int, read_rate: float
) -> list[LlmRow]:
    """`read_rate` is in bytes per second, 0 where it is not known."""
    sizes = {name: _sizes(folder) for name, folder in folders.items()}
    workers = {name: _Worker(folder, threads, sizes[name]["tokens"]) for name, folder in folders.items()}
    rows: list[LlmRow] = []
    try:
        for prompt in prompts:
            rounds_of = [{name: one.ask(prompt, answer) for name, one in workers.items()} for _ in range(rounds)]
            found = {name: _measured([turn[name] for turn in rounds_of]) for name in workers}
            rows += [_row(name, found, sizes[name], threads, prompt, read_rate) for name in found]
    finally:
        for one in workers.values():
            one.close()
    return rows


def _measured(turns: Sequence[Mapping[str, Any]]) -> Measured:
    firsts = [float(turn["first_s"]) for turn in turns]
    steps = [median(turn["steps_s"]) for turn in turns]
    return Measured(firsts, steps, max(int(turn["peak_bytes"]) for turn in turns), list(turns[0]["tokens"]))


def _row(
    name: str, found: Mapping[str, Measured], sizes: Mapping[str, int], threads: int, prompt: int, read_rate: float
) -> LlmRow:
    own, base = found[name], next(iter(found.values()))
    answer = len(own.tokens) - 1
    read = sizes["weights"] + (prompt + answer // 2) * sizes["cache"]
    rest = zip(own.tokens, base.tokens, strict=True)
    same = next((at for at, (left, right) in enumerate(rest) if left != right), len(own.tokens))
    step, first = median(own.step_s), median(own.first_s)
    return LlmRow(
        name, threads, prompt, prompt / first, 1 / step, first * 1e3, own.peak_bytes / 1e6,
        read / step / read_rate if read_rate else 0.0, same, len(own.tokens),
        None if own is base else paired_ratio(base.first_s, own.first_s),
        None if own is base else paired_ratio(base.step_s, own.step_s),
    )  # fmt: skip


def _sizes(folder: Path) -> dict[str, int]:
    """Tokens of the vocabulary, bytes of weights, and bytes of keys and values of one token."""
    model = json.loads((folder / "genai_config.json").read_text(encoding="utf-8"))["model"]
    decoder = model["decoder"]
    weights = max(path.stat().st_size for path in folder.iterdir() if path.is_file())
    cache = 8 * decoder["num_key_value_heads"] * decoder["head_size"] * decoder["num_hidden_layers"]
    return {"tokens": int(model["vocab_size"]), "weights": weights, "cache": int(cache)}


class _Worker:
    """A process that has a folder open."""

    def __init__(self, folder: Path, threads: int, tokens: int) -> None:
        command = [sys.executable, "-P", str(Path(__file__).with_name("llm_worker.py")), str(folder), str(threads)]
        self._process = subprocess.Popen(
            [*command, str(tokens)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=child_environment({"OMP_NUM_THREADS": "1"}),
        )  # fmt: skip
        self._answer()

    def ask(self, prompt: int, answer: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([prompt, answer]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"onnxruntime-genai ended with exit code {self._process.wait()}")
        return cast("dict[str, Any]", json.loads(line))

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(timeout=60)


def as_facts(rows: Sequence[LlmRow]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]


_HEADS = ("folder", "threads", "prompt", "prefill tokens/s", "decode tokens/s", "first token ms", "peak MB",
          "share of read", "same tokens")  # fmt: skip


def to_table(rows: Sequence[LlmRow]) -> list[tuple[str, ...]]:
    """Heads, then a line for each row."""
    return [_HEADS, *(_cells(row) for row in rows)]


def to_markdown(rows: Sequence[LlmRow]) -> str:
    return as_markdown(to_table(rows))


def as_markdown(table: Sequence[tuple[str, ...]]) -> str:
    heads, *lines = table
    ruled = [heads, tuple("---" for _ in heads), *lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in ruled)


def _cells(row: LlmRow) -> tuple[str, ...]:
    prefill = f"{row.prefill_rate:.0f}" + (f" ({row.prefill})" if row.prefill else "")
    decode = f"{row.decode_rate:.1f}" + (f" ({row.decode})" if row.decode else "")
    share = f"{row.read_share:.0%}" if row.read_share else "-"
    return (
        row.name, str(row.threads), str(row.prompt), prefill, decode, f"{row.first_token_ms:.0f}", f"{row.peak_mb:.0f}",
        share, f"{row.same_tokens}/{row.answer}",
    )  # fmt: skip


def write_picture(rows: Sequence[LlmRow], path: Path) -> None:
    """Rates over the prompt's length, a line for each folder and number of threads."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, sides = cast("tuple[Any, Any]", pyplot.subplots(1, 2, figsize=(10, 4)))
    for (name, threads), own in _lines(rows).items():
        label = f"{name}, {threads} thread{'s' if threads > 1 else ''}"
        sides[0].plot([r.prompt for r in own], [r.prefill_rate for r in own], marker="o", label=label)
        sides[1].plot([r.prompt for r in own], [r.decode_rate for r in own], marker="o", label=label)
    for side, title in zip(sides, ("prefill", "decode"), strict=True):
        side.set(title=title, xlabel="tokens of the prompt", ylabel="tokens/s", ylim=(0, None))
        side.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _lines(rows: Sequence[LlmRow]) -> dict[tuple[str, int], list[LlmRow]]:
    found: dict[tuple[str, int], list[LlmRow]] = {}
    for row in rows:
        found.setdefault((row.name, row.threads), []).append(row)
    return found
