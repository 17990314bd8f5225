"""`smelt.batch` against a loop over ready arrays in the same compiled model, from 5 ms a row up.

    python bench/batch_overhead.py prepare DIR      compile a model of about 10 ms a row on one thread
    python bench/batch_overhead.py run DIR [--rows 1500] [--rounds 2] [--threads 2]

Turns are taken in one process. Prints rows per second of the loop, of the whole run with the start of its process, and
from the first rows on.
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
from onnx import TensorProto, helper

import smelt
from smelt.frontends.batch.model_call import ModelCall
from smelt.frontends.batch.records import ModelRef

WIDTH, DEPTH, BATCH = 768, 12, 16
TOKENS = 64


def prepare(folder: Path) -> None:
    """Twelve products of 64 tokens by 768 x 768 a row, with activations: about 0.9 GFLOP."""
    random = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for layer in range(DEPTH):
        weight = (random.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH)).astype(np.float32)
        weights.append(onnx.numpy_helper.from_array(weight, f"w{layer}"))
        nodes += [helper.make_node("MatMul", [last, f"w{layer}"], [f"h{layer}"])]
        nodes += [helper.make_node("Tanh", [f"h{layer}"], [f"t{layer}"])]
        last = f"t{layer}"
    nodes.append(helper.make_node("ReduceMean", [last], ["y"], axes=[1], keepdims=0))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", TOKENS, WIDTH])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", WIDTH])
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    smelt.compile(model, folder / "artifact", timing=False).close()


def data(folder: Path, rows: int) -> np.ndarray:
    x = np.random.default_rng(1).standard_normal((rows, TOKENS * WIDTH), dtype=np.float32)
    cells = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), TOKENS * WIDTH)
    pq.write_table(pa.table({"x": cells}), folder / "in.parquet", row_group_size=256, compression="none")
    return x.reshape(rows, TOKENS, WIDTH)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("step", choices=("prepare", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    if given.step == "prepare":
        given.folder.mkdir(parents=True, exist_ok=True)
        prepare(given.folder)
        return
    x = data(given.folder, given.rows)
    shares = []
    for round_ in range(given.rounds):
        call = ModelCall(ModelRef("", "", str(given.folder / "artifact")), given.threads)
        call.call({"x": x[:BATCH]}, BATCH, ["y"])
        started = time.perf_counter()
        for at in range(0, given.rows, BATCH):
            call.call({"x": x[at : at + BATCH]}, len(x[at : at + BATCH]), ["y"])
        loop = given.rows / (time.perf_counter() - started)
        del call
        out = given.folder / f"out{round_}"
        shutil.rmtree(out, ignore_errors=True)
        settings = {"batch": BATCH, "workers": 1, "threads": given.threads}
        report = smelt.batch(given.folder / "artifact", given.folder / "in.parquet", out, **settings)
        steady = (given.rows - BATCH) / (report.seconds - report.seconds_to_first_rows)
        shares.append(steady / loop)
        print(
            f"loop {loop:.1f}, whole run {report.rows_per_second:.1f}, from the first rows {steady:.1f} rows/s",
            flush=True,
        )
    print(f"share {np.exp(np.log(shares).mean()):.3f}, lowest {min(shares):.3f}; {1e3 / loop:.1f} ms a row")


if __name__ == "__main__":
    main()
