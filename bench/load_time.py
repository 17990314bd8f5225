"""From a folder to the first result: a saved module beside a plain ONNX Runtime session, each in a process of its own.

    python bench/load_time.py [--layers 4] [--rounds 5]

An encoder is saved twice: by `CompiledModule.save`, and as a plain ONNX file by `smelt.export`. Each process imports
what it needs first; timed are opening and the first call. Printed are the median and lowest times, and their ratio.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import smelt

LIMIT = 1.5
SHAPE = (2, 64, 256)

SAVED = f"""
import sys, time, torch, smelt
from smelt.frontends.module import load_module
import onnxruntime
torch.set_num_threads(1)
x = torch.ones({SHAPE})
start = time.perf_counter()
with torch.no_grad():
    smelt.load(sys.argv[1], threads=1)(x)
print(time.perf_counter() - start)
"""

PLAIN = f"""
import sys, time, numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
x = numpy.ones({SHAPE}, numpy.float32)
start = time.perf_counter()
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
session.run(None, {{session.get_inputs()[0].name: x}})
print(time.perf_counter() - start)
"""


def encoder(layers: int) -> torch.nn.Module:
    layer = torch.nn.TransformerEncoderLayer(SHAPE[-1], 4, 4 * SHAPE[-1], batch_first=True)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval()


def seconds(program: str, path: Path) -> float:
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    module, x = encoder(chosen.layers), torch.ones(SHAPE)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        plain, saved = Path(folder) / "plain.onnx", Path(folder) / "saved"
        smelt.export(module, (x,)).save(plain)
        smelt.compile(module).save(saved, x)
        times: dict[str, list[float]] = {"plain session": [], "smelt.load": []}
        for _ in range(chosen.rounds):
            times["plain session"].append(seconds(PLAIN, plain))
            times["smelt.load"].append(seconds(SAVED, saved))
    for name, taken in times.items():
        print(f"{name:14} median {statistics.median(taken) * 1e3:7.1f} ms, lowest {min(taken) * 1e3:7.1f} ms")
    for kind, measure in (("median", statistics.median), ("lowest", min)):
        ratio = measure(times["smelt.load"]) / measure(times["plain session"])
        print(f"{kind}: smelt.load takes {ratio:.2f} times as long (at most {LIMIT})")


if __name__ == "__main__":
    main()
