"""Products with block-quantized weights: smelt in both arithmetics, ONNX Runtime on the same files, float32 smelt.

    python bench/nbits.py [--rows 1,4,16,128,512] [--blocks 32,128] [--bits 4] [--depth 2048] [--layers 4] [--threads 1]

A model is a row of MatMulNBits nodes. Rounds are interleaved; the least time of each counts. With one thread times are
those of the processor, so that other processes matter less. Read bandwidth and the peaks of float32 and integer
arithmetic are measured in the same run; a share is of the first for up to 4 rows, of the second (exact) or third (fast)
for more.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import smelt
from smelt.base import Config
from smelt.bench.roofline import measure_limits
from smelt.ir.kernel.bit_fields import pack_bits

Run = Callable[[np.ndarray], Any]
STEPS = 3_000_000


def integer_peak() -> float:
    """Operations of products of bytes per second, of one core."""
    source = Path(__file__).parent / "nbits_peak.c"
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "peak.so"
        subprocess.run(["gcc", "-O2", "-march=native", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
        dots = ctypes.CDLL(str(library)).peak_dots
        dots.restype = ctypes.c_int64
        best = 0.0
        for _ in range(5):
            started = time.thread_time()
            each = dots(ctypes.c_int64(STEPS))
            best = max(best, each * STEPS / (time.thread_time() - started))
    return best


def model_of(depth: int, layers: int, bits: int, block: int, zeros: bool, level: int) -> onnx.ModelProto:
    """Square matrices after each other; without bits, in float32."""
    rng = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    held: list[onnx.TensorProto] = []
    for i in range(layers):
        names = ["x" if i == 0 else f"h{i}", "y" if i == layers - 1 else f"h{i + 1}"]
        if not bits:
            held.append(numpy_helper.from_array(_normal(rng, depth), f"w{i}"))
            nodes.append(helper.make_node("MatMul", [names[0], f"w{i}"], names[1:]))
            continue
        shape = (depth, depth // block)
        held.append(
            numpy_helper.from_array(rng.integers(0, 256, (*shape, block * bits // 8)).astype(np.uint8), f"b{i}")
        )
        scales = rng.uniform(0.5, 1, shape) / (math.sqrt(depth) * 2 ** (bits - 1))
        held.append(numpy_helper.from_array(scales.astype(np.float32), f"s{i}"))
        inputs = [names[0], f"b{i}", f"s{i}"]
        if zeros:
            points = pack_bits(rng.integers(0, 1 << bits, shape).astype(np.uint8), bits)
            held.append(numpy_helper.from_array(points, f"z{i}"))
            inputs.append(f"z{i}")
        how: dict[str, Any] = {"K": depth, "N": depth, "bits": bits, "block_size": block, "accuracy_level": level}
        nodes.append(helper.make_node("MatMulNBits", inputs, names[1:], domain="com.microsoft", **how))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", depth])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", depth])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y], held), opset_imports=opsets, ir_version=10)


def _normal(rng: np.random.Generator, depth: int) -> np.ndarray:
    return (rng.standard_normal((depth, depth)) / math.sqrt(depth)).astype(np.float32)


def kernels(model: onnx.ModelProto, threads: int) -> Run:
    compiled = smelt.compile(model, threads=threads, verify=False, force=True)
    assert not compiled.result.plan.fallbacks
    return lambda x: compiled.run({"x": x})


def stock(model: onnx.ModelProto, threads: int) -> Run:
    options = cast("Any", onnxruntime).SessionOptions()
    options.intra_op_num_threads = threads
    session: Any = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return lambda x: session.run(None, {"x": x})


def least_times(runs: dict[str, Run], x: np.ndarray, seconds: float, threads: int) -> dict[str, float]:
    clock = time.process_time if threads == 1 else time.perf_counter
    best, begun = dict.fromkeys(runs, math.inf), time.perf_counter()
    while time.perf_counter() - begun < seconds:
        for name, run in runs.items():
            started = clock()
            run(x)
            best[name] = min(best[name], clock() - started)
    return best


def weight_bytes(depth: int, layers: int, bits: int, block: int, zeros: bool) -> float:
    """As they are packed: float32 scales, zero points of one byte."""
    return depth * depth * layers * (bits / 8 + (4 + int(zeros)) / block)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="1,4,16,128,512")
    parser.add_argument("--blocks", default="32,128")
    parser.add_argument("--bits", type=int, default=4)
    parser.add_argument("--depth", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    how = parser.parse_args()
    limits, dots = measure_limits(how.threads, Config.from_env()), integer_peak() * how.threads
    print(f"onnxruntime {onnxruntime.__version__}; {limits}; integer peak {dots / 1e9:.0f} GOP/s")
    plain = kernels(model_of(how.depth, how.layers, 0, 0, False, 0), how.threads)
    print("| rows | block | zero points | fp32 ms | exact ms | share | ORT / exact | fast ms | share | ORT / fast |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    ratios: list[float] = []
    for block in (int(b) for b in how.blocks.split(",")):
        for zeros in (False, True):
            runs = {"fp32": plain}
            for name, level in (("exact", 0), ("fast", 4)):
                model = model_of(how.depth, how.layers, how.bits, block, zeros, level)
                runs[name], runs[f"ORT {name}"] = kernels(model, how.threads), stock(model, how.threads)
            moved = weight_bytes(how.depth, how.layers, how.bits, block, zeros)
            for rows in (int(r) for r in how.rows.split(",")):
                x = np.random.default_rng(rows).standard_normal((rows, how.depth)).astype(np.float32)
                took = least_times(runs, x, how.seconds, how.threads)
                done = 2.0 * rows * how.depth**2 * how.layers
                cells = [f"{rows}", f"{block}", "yes" if zeros else "no", f"{took['fp32'] * 1e3:.2f}"]
                for name, peak in (("exact", limits.fma), ("fast", dots)):
                    share = moved / took[name] / limits.read if rows <= 4 else done / took[name] / peak
                    ratios.append(took[f"ORT {name}"] / took[name])
                    cells += [f"{took[name] * 1e3:.2f}", f"{share:.0%}", f"{ratios[-1]:.2f}"]
                print(f"| {' | '.join(cells)} |", flush=True)
    print(f"geometric mean over ONNX Runtime: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}x")


if __name__ == "__main__":
    main()
