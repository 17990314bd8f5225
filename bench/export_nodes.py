"""Nodes of exported models: smelt beside torch.onnx, over shrunk architectures.

    python bench/export_nodes.py [NAME ...] [--write] [--smelt-only]

Both export the same module with the same free sizes: torch.onnx with its optimizer on, smelt with its default rules
(and, for comparison, with those for ONNX Runtime at opset 23). `--write` keeps the table in bench/results; torch.onnx
takes 15 to 70 s a model, so `--smelt-only` takes its counts from there.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

import smelt

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "bench" / "results" / "export_nodes.json"
sys.path.insert(0, str(ROOT / "tests" / "zoo"))

from zoo_build import build, inputs  # noqa: E402

MODELS = (
    "distilbert", "bert", "mobilebert", "xlm-roberta", "gpt2", "deberta", "deberta-v2", "bart", "squeezebert", "ernie",
    "vit", "llama", "t5", "qwen2",
)  # fmt: skip


def case(name: str) -> tuple[Any, dict[str, Any], dict[str, dict[int, str]]]:
    """A shrunk model, its arguments, and the names of the sizes that vary."""
    model, config = build(name)
    given = inputs(model, config, 2, 16)
    return model, given, {k: {0: "batch", **({1: "length"} if v.dim() == 2 else {})} for k, v in given.items()}


def count(model: Any) -> int:
    return sum(1 for _ in model.graph)


def by_smelt(name: str, **options: Any) -> int:
    model, given, names = case(name)
    return count(smelt.export(model, (), given, dynamic_shapes=names, **options).model)


def by_torch(name: str) -> int:
    model, given, names = case(name)
    free = {k: dict.fromkeys(axes, torch.export.Dim.DYNAMIC) for k, axes in names.items()}
    with torch.no_grad():
        program = torch.export.export(model, (), given, dynamic_shapes=free, strict=False)
        return count(torch.onnx.export(program, dynamo=True, optimize=True, verbose=False).model)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=MODELS)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--smelt-only", action="store_true")
    chosen = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    kept = json.loads(TABLE.read_text()) if TABLE.exists() else {"models": {}}
    print(f"{'model':14} {'torch.onnx':>10} {'smelt':>6} {'default+ort, opset 23':>22}")
    for name in chosen.names:
        known = kept["models"].get(name, {}).get("torch.onnx")
        theirs = known if chosen.smelt_only and known else by_torch(name)
        row = {"torch.onnx": theirs, "smelt": by_smelt(name), "ort": by_smelt(name, patterns="default+ort", opset=23)}
        kept["models"][name] = row
        print(f"{name:14} {row['torch.onnx']:>10} {row['smelt']:>6} {row['ort']:>22}", flush=True)
    if chosen.write:
        kept["versions"] = {p: importlib.metadata.version(p) for p in ("torch", "onnxscript", "transformers")}
        TABLE.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
