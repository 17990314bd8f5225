"""From a folder to the first result: a saved module beside a plain ONNX Runtime session, each in a process of its own.

    python bench/load_time.py [--layers 4] [--rounds 5] [--model distilbert]

An encoder, or a model of the zoo at full size, is saved twice: by `CompiledModule.save`, and as a plain ONNX file by
`smelt.export`. Each process imports what it needs first; timed are opening and the first call. Printed are the median
and lowest times, their ratio, and the most memory that a process held.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import smelt
from smelt.bench import zoo

LIMIT = 1.5
SHAPE = (2, 64, 256)

SAVED = r"""
import pathlib, re, sys, time, numpy, torch, smelt
from smelt.frontends.module import load_module
import onnxruntime
torch.set_num_threads(1)
given = [torch.from_numpy(array) for array in numpy.load(sys.argv[2]).values()]
start = time.perf_counter()
with torch.no_grad():
    smelt.load(sys.argv[1], threads=1)(*given)
print(time.perf_counter() - start, re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1])
"""

PLAIN = r"""
import pathlib, re, sys, time, numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
given = list(numpy.load(sys.argv[2]).values())
start = time.perf_counter()
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
session.run(None, dict(zip([argument.name for argument in session.get_inputs()], given, strict=True)))
print(time.perf_counter() - start, re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1])
"""


def encoder(layers: int) -> torch.nn.Module:
    layer = torch.nn.TransformerEncoderLayer(SHAPE[-1], 4, 4 * SHAPE[-1], batch_first=True)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval()


def model_of(chosen: argparse.Namespace) -> tuple[torch.nn.Module, list[torch.Tensor]]:
    if chosen.model is None:
        return encoder(chosen.layers), [torch.ones(SHAPE)]
    feeds = zoo.feeds(chosen.model, 1, 128)
    return zoo.module(chosen.model), [torch.from_numpy(array) for array in feeds.values()]


def measured(program: str, path: Path, feeds: Path) -> tuple[float, float]:
    """Seconds, and the peak of memory in megabytes."""
    command = [sys.executable, "-c", program, str(path), str(feeds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    taken, peak = done.stdout.split()[-2:]
    return float(taken), int(peak) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", default=None)
    chosen = parser.parse_args()
    module, given = model_of(chosen)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        plain, saved, feeds = Path(folder) / "plain.onnx", Path(folder) / "saved", Path(folder) / "feeds.npz"
        np.savez(feeds, *[x.numpy() for x in given])
        smelt.export(module, tuple(given)).save(plain)
        smelt.compile(module).save(saved, *given)
        found: dict[str, list[tuple[float, float]]] = {"plain session": [], "smelt.load": []}
        for _ in range(chosen.rounds):
            found["plain session"].append(measured(PLAIN, plain, feeds))
            found["smelt.load"].append(measured(SAVED, saved, feeds))
    times = {name: [taken for taken, _ in rows] for name, rows in found.items()}
    for name, taken in times.items():
        peak = statistics.median(held for _, held in found[name])
        lowest = f"lowest {min(taken) * 1e3:7.1f} ms"
        print(f"{name:14} median {statistics.median(taken) * 1e3:7.1f} ms, {lowest}, peak {peak:.0f} MB")
    for kind, measure in (("median", statistics.median), ("lowest", min)):
        ratio = measure(times["smelt.load"]) / measure(times["plain session"])
        print(f"{kind}: smelt.load takes {ratio:.2f} times as long (at most {LIMIT})")


if __name__ == "__main__":
    main()
