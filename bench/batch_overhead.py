"""`smelt.batch` against a loop over ready arrays in the same compiled model, from 5 ms a row up.

    python bench/batch_overhead.py prepare DIR [--layers 40] [--width 768]   compile a model; a layer is 75 MFLOP a row
    python bench/batch_overhead.py run DIR [--rows 2400] [--rounds 8] [--threads 2] [--workers 1 2] [--format arrow]
    python bench/batch_overhead.py cpu DIR [--rows 400] [--rounds 3] [--format arrow]    by stage, one thread

A row is 64 tokens of `width` floats: 196 kB of 768, 4 kB of 16. Both sides run in each round, and count from a loaded
model, first call included. The loop has its rows in memory; the run reads them from Parquet, or maps them from an Arrow
file, and counts until its results are on disk.
`run` prints the share of the loop's throughput that runs of one worker with all threads, and of several, have, over
the rounds in which others left the CPUs alone. `cpu` prints the CPU time of each stage's thread, and the share of
inference, which a busy machine changes little.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
from onnx import TensorProto, helper
from quiet_rounds import QUIET, watched

import smelt
from smelt.bench import paired_ratio
from smelt.frontends.batch import crew, worker
from smelt.frontends.batch.model_call import ModelCall
from smelt.frontends.batch.records import ModelRef

WIDTH, BATCH, TOKENS = 768, 16, 64
STAGES = {"read": "windows", "prepare": "prepared", "infer": "inferred"}


def prepare(folder: Path, layers: int, width: int) -> None:
    """Products of 64 tokens by 768 x 768 a row, with activations."""
    random = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for layer in range(layers):
        rows = WIDTH if layer else width
        weight = (random.standard_normal((rows, WIDTH)) / np.sqrt(rows)).astype(np.float32)
        weights.append(onnx.numpy_helper.from_array(weight, f"w{layer}"))
        nodes += [helper.make_node("MatMul", [last, f"w{layer}"], [f"h{layer}"])]
        nodes += [helper.make_node("Tanh", [f"h{layer}"], [f"t{layer}"])]
        last = f"t{layer}"
    nodes.append(helper.make_node("ReduceMean", [last], ["y"], axes=[1], keepdims=0))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", TOKENS, width])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", WIDTH])
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    shutil.rmtree(folder / "artifact", ignore_errors=True)
    smelt.compile(model, folder / "artifact", timing=False).close()


def write_rows(folder: Path, rows: int, ending: str) -> np.ndarray:
    model = onnx.load(folder / "artifact" / "model.onnx", load_external_data=False)
    width = model.graph.input[0].type.tensor_type.shape.dim[2].dim_value
    x = np.random.default_rng(1).standard_normal((rows, TOKENS * width), dtype=np.float32)
    cells = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), TOKENS * width)
    table = pa.table({"x": cells})
    if ending == "parquet":
        pq.write_table(table, folder / "in.parquet", row_group_size=200, compression="none")
    else:
        feather.write_feather(table, folder / "in.arrow", compression="uncompressed", chunksize=200)
    return x.reshape(rows, TOKENS, width)


def loop_seconds(artifact: Path, x: np.ndarray, threads: int) -> float:
    call = ModelCall(ModelRef("", "", str(artifact)), threads)
    started = time.perf_counter()
    for at in range(0, len(x), BATCH):
        call.call({"x": x[at : at + BATCH]}, len(x[at : at + BATCH]), ["y"])
    return time.perf_counter() - started


def run_seconds(folder: Path, ending: str, settings: dict[str, Any]) -> float:
    shutil.rmtree(folder / "out", ignore_errors=True)
    report = smelt.batch(folder / "artifact", folder / f"in.{ending}", folder / "out", batch=BATCH, **settings)
    return report.seconds - report.seconds_to_ready


def timed(stages: dict[str, float], name: str, steps: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Steps whose CPU time counts for a stage. Each stage has a thread of its own."""

    def counted(*given: Any) -> Iterator[Any]:
        started = time.thread_time()
        left = steps(*given)
        while True:
            step = next(left, None)
            stages[name] = stages.get(name, 0.0) + time.thread_time() - started
            if step is None:
                return
            yield step
            started = time.thread_time()

    return counted


def cpu_by_stage(given: argparse.Namespace) -> None:
    """In this process, so that its threads can be asked."""
    rounds: list[dict[str, float]] = []
    crew.Crew.in_processes = property(lambda _: False)  # pyright: ignore[reportAttributeAccessIssue]
    whole = {name: getattr(worker.Worker, f"_{made}") for name, made in STAGES.items()}
    take = worker._Open.take
    for _ in range(given.rounds):
        stages: dict[str, float] = {}
        for name, steps in whole.items():
            setattr(worker.Worker, f"_{STAGES[name]}", timed(stages, name, steps))
        writing = timed(stages, "write", lambda *item: iter([take(*item) or True]))
        worker._Open.take = lambda *item: next(writing(*item))  # noqa: B023
        run_seconds(given.folder, given.format, {"workers": 1, "threads": 1})
        rounds.append(stages)
    each = {name: 1e3 * float(np.median([one[name] for one in rounds])) / given.rows for name in rounds[0]}
    print("ms of CPU a row:", ", ".join(f"{name} {ms:.3f}" for name, ms in each.items()))
    print(f"inference has {each['infer'] / sum(each.values()):.3f} of it")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("step", choices=("prepare", "run", "cpu"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--rows", type=int, default=2400)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--format", choices=("parquet", "arrow"), default="parquet")
    given = parser.parse_args()
    if given.step == "prepare":
        given.folder.mkdir(parents=True, exist_ok=True)
        prepare(given.folder, given.layers, given.width)
        return
    x = write_rows(given.folder, given.rows, given.format)
    if given.step == "cpu":
        cpu_by_stage(given)
        return
    times: dict[str, list[float]] = {}
    quiet: list[bool] = []

    def one_round() -> None:
        times.setdefault("loop", []).append(loop_seconds(given.folder / "artifact", x, given.threads))
        for workers in given.workers:
            settings = {"workers": workers, "threads": max(1, given.threads // workers)}
            name = f"{workers} x {settings['threads']} threads"
            times.setdefault(name, []).append(run_seconds(given.folder, given.format, settings))

    for _ in range(given.rounds):
        _, others = watched(one_round)
        quiet.append(others <= QUIET)
        rates = ", ".join(f"{name} {given.rows / seconds[-1]:.1f}" for name, seconds in times.items())
        print(f"{rates} rows/s; others used {others:.0%} of the CPUs", flush=True)
    if any(quiet):
        times = {name: [s for s, calm in zip(seconds, quiet, strict=True) if calm] for name, seconds in times.items()}
    loops = times.pop("loop")
    print(f"{1e3 * float(np.median(loops)) / given.rows:.1f} ms a row on {given.threads} threads")
    for name, seconds in times.items():
        ratio = paired_ratio(loops, seconds)
        print(f"{name}: {ratio.value:.3f} of the loop [{ratio.low:.3f}, {ratio.high:.3f}], {ratio.rounds} rounds")


if __name__ == "__main__":
    main()
