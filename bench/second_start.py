"""The second start of a program: a session from the cache beside the artifact loaded directly.

    python bench/second_start.py MODEL.onnx [--rounds 10] [--shapes input_ids:1,16]

Each start is a process of its own. Timed inside it, after its imports, are opening the session and the first call;
outside it, the whole process. The ways: `direct` is onnxruntime over the artifact folder, nothing of smelt imported;
`session` is `smelt.InferenceSession` over the plain model, `hook` is onnxruntime under SMELT_HOOK=on, `stock` is
onnxruntime over the plain model. Printed are the median of the ratios to `direct`, round by round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import smelt
from smelt.base.config import Config
from smelt.frontends.session.compiled import artifact_for
from smelt.frontends.session.found import Wanted

LIMIT = 1.2
DIRECT = """
import json
library = json.load(open(sys.argv[1] + "/manifest.json"))["library"]
start = time.perf_counter()
options = ort.SessionOptions()
options.register_custom_ops_library(f"{sys.argv[1]}/{library['file']}")
session = ort.InferenceSession(sys.argv[1] + "/model.onnx", options)
"""
SESSION = (
    "import smelt; smelt.InferenceSession; start = time.perf_counter(); session = smelt.InferenceSession(sys.argv[1])"
)
STOCK = "start = time.perf_counter(); session = ort.InferenceSession(sys.argv[1])"
PROGRAM = """
import sys, time
{hook}
import numpy, onnxruntime as ort
feeds = dict(numpy.load(sys.argv[2]))
{opened}
session.run(None, feeds)
print(time.perf_counter() - start)
"""
HOOK = f"sys.path.insert(0, {str(Path(smelt.__file__).parents[1])!r}); exec(open({{!r}}).read())".format(
    str(Path(smelt.__file__).parents[1] / "smelt_hook.pth")
)


def started(way: str, model: Path, artifact: Path, feeds: Path) -> tuple[float, float]:
    """Seconds inside and of the whole process."""
    opened = {"direct": DIRECT, "session": SESSION}.get(way, STOCK)
    code = PROGRAM.format(opened=opened, hook=HOOK if way == "hook" else "")
    command = [sys.executable, "-c", code, str(artifact if way == "direct" else model), str(feeds)]
    environment = {**os.environ, "SMELT_HOOK": "on" if way == "hook" else "off"}
    begun = time.perf_counter()
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.split()[-1]), time.perf_counter() - begun


def inputs(model: Path, shapes: list[str], folder: Path) -> Path:
    import onnxruntime as ort

    wanted = {
        name: [int(size) for size in sizes.split(",")] for name, _, sizes in (one.partition(":") for one in shapes)
    }
    feeds: dict[str, np.ndarray] = {}
    for argument in ort.InferenceSession(model, providers=["CPUExecutionProvider"]).get_inputs():
        shape = wanted.get(argument.name, [size if isinstance(size, int) else 1 for size in argument.shape])
        kind = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}.get(argument.type, np.float32)
        feeds[argument.name] = np.ones(shape, kind)
    np.savez(folder / "feeds.npz", **feeds)
    return folder / "feeds.npz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--shapes", action="append", default=[])
    chosen = parser.parse_args()
    found = artifact_for(chosen.model, Wanted(900.0), Config.from_env())
    assert found.folder is not None, found.reason
    assert json.loads((found.folder / "manifest.json").read_bytes())["library"], "nothing was compiled"
    ways = ("direct", "session", "hook", "stock")
    times: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder:
        feeds = inputs(chosen.model, chosen.shapes, Path(folder))
        for number in range(chosen.rounds):
            for way in ways if number % 2 == 0 else reversed(ways):
                times[way].append(started(way, chosen.model, found.folder, feeds))
    for way in ways:
        cells = [f"{way:8}"]
        for place, what in enumerate(("open and first call", "whole process")):
            each = [one[place] for one in times[way]]
            ratio = statistics.median(a / b[place] for a, b in zip(each, times["direct"], strict=True))
            cells.append(f"{what} {statistics.median(each) * 1e3:7.1f} ms, {ratio:.2f} of direct (at most {LIMIT})")
        print("; ".join(cells))


if __name__ == "__main__":
    main()
