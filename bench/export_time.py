"""From an ExportedProgram to an ONNX model: smelt beside torch.onnx, in turns, in one process.

    python bench/export_time.py [--layers 8] [--rounds 3]

Both get the same ExportedProgram of a BERT-like encoder; capturing it is not timed. What is timed ends with the model
in memory: for torch.onnx its decompositions, translation and optimization, for smelt all of `translate_program`.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from typing import Any

import torch
import transformers

from smelt.export import translate_program


def captured(layers: int) -> Any:
    config = transformers.BertConfig(
        num_hidden_layers=layers, hidden_size=256, num_attention_heads=4, intermediate_size=1024, vocab_size=1000
    )
    model = transformers.BertModel(config).eval()
    ids = torch.ones(2, 16, dtype=torch.int64)
    shapes = {"input_ids": {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=512)}}
    return torch.export.export(model, (), {"input_ids": ids}, dynamic_shapes=shapes)


def by_torch(program: Any) -> int:
    made = torch.onnx.export(program, dynamo=True, verbose=False)
    return len(list(made.model.graph))


def by_smelt(program: Any) -> int:
    return len(list(translate_program(program).model.graph))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    program = captured(options.layers)
    print(f"torch.export: {time.perf_counter() - start:.2f} s")
    contestants = {"torch.onnx": by_torch, "smelt": by_smelt}
    times: dict[str, list[float]] = {name: [] for name in contestants}
    nodes: dict[str, int] = {}
    for _ in range(options.rounds):
        for name, make in contestants.items():
            start = time.perf_counter()
            nodes[name] = make(program)
            times[name].append(time.perf_counter() - start)
    for name, taken in times.items():
        print(f"{name:12} median {statistics.median(taken):.3f} s, first {taken[0]:.3f} s, {nodes[name]} nodes")
    print(f"ratio {statistics.median(times['smelt']) / statistics.median(times['torch.onnx']):.3f}")


if __name__ == "__main__":
    main()
