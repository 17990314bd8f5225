"""LSTM and GRU layers against ONNX Runtime's, over sizes, and against what the machine can do.

    python bench/recurrent.py build FOLDER [--ops lstm,gru]              (compiles one model for each layer)
    python bench/recurrent.py time FOLDER [FOLDER ...] [--threads 1,2]   (times them, in turns with stock)

`build` writes models with free steps and rows; `time` runs each at several of both, stock and every folder one after
the other in each round. A line has the time of stock, then for every folder the ratio to it (best rounds of both), its
GFLOP/s over both products, and their share of the multiply-adds that the machine was measured to do in the same run.
One thread is timed by its own CPU time, which other processes change little; more need a machine that is idle. Two
folders, built from two states of the sources, are compared so.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

GATES = {"LSTM": 4, "GRU": 3}
REST_S = 0.004  # in which the threads of the session before stop spinning


@dataclass(frozen=True)
class Layer:
    """One layer of all its sizes but steps and rows."""

    op: str
    hidden: int
    width: int
    directions: int

    @property
    def name(self) -> str:
        return f"{self.op.lower()}-h{self.hidden}-i{self.width}-d{self.directions}"

    def flops(self, steps: int, rows: int) -> float:
        return 2.0 * steps * rows * self.directions * GATES[self.op] * self.hidden * (self.hidden + self.width)

    def model(self) -> onnx.ModelProto:
        rng = np.random.default_rng(0)
        wide, d = GATES[self.op] * self.hidden, self.directions
        sizes = {"W": (d, wide, self.width), "R": (d, wide, self.hidden), "B": (d, 2 * wide)}
        fixed = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32) * 0.1, n) for n, s in sizes.items()]
        options = {"linear_before_reset": 1} if self.op == "GRU" else {}
        node = helper.make_node(
            self.op, ["x", "W", "R", "B"], ["Y", "Y_h"], hidden_size=self.hidden,
            direction="bidirectional" if d == 2 else "forward", **options,
        )  # fmt: skip
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["steps", "rows", self.width])
        outs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("Y", "Y_h")]
        graph = helper.make_graph([node], self.name, [x], outs, fixed)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def layers(arguments: argparse.Namespace) -> list[Layer]:
    return [
        Layer(op.upper(), *sizes)
        for op in arguments.ops.split(",")
        for sizes in itertools.product(*(numbers(t) for t in (arguments.hidden, arguments.width, arguments.directions)))
    ]


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def build(arguments: argparse.Namespace) -> None:
    import smelt

    for layer in layers(arguments):
        to = arguments.folders[0] / layer.name
        if (to / "model.onnx").exists():
            continue
        to.mkdir(parents=True, exist_ok=True)
        onnx.save(layer.model(), to.with_suffix(".onnx"))
        with smelt.compile(str(to.with_suffix(".onnx")), force=True, verify=False, levels=arguments.level) as made:
            made.save(to)


def session(path: Path, threads: int, library: Path | None = None) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    if library is not None:
        options.register_custom_ops_library(str(library))
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def runner(made: onnxruntime.InferenceSession, x: np.ndarray) -> Callable[[], None]:
    binding = made.io_binding()
    binding.bind_cpu_input("x", x)
    for output in made.get_outputs():
        binding.bind_output(output.name)
    return lambda: made.run_with_iobinding(binding)


def spent(run: Callable[[], None], seconds: float, clock: Callable[[], float]) -> float:
    """Seconds of a run: the mean of those that fit the time, after one to warm up."""
    time.sleep(REST_S)
    run()
    start, count = clock(), 0
    while count < 1 or clock() - start < seconds:
        run()
        count += 1
    return (clock() - start) / count


def compare(runs: Sequence[Callable[[], None]], rounds: int, seconds: float, threads: int) -> tuple[float, list[float]]:
    """Stock's time, and of each other how many times faster it is, by the best rounds: others may use the machine."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    every = [[spent(run, seconds, clock) for run in runs] for _ in range(rounds)]
    stock, *others = (min(times) for times in zip(*every, strict=True))
    return stock, [stock / one for one in others]


def timed(arguments: argparse.Namespace) -> None:
    from smelt.base import Config
    from smelt.bench.roofline import measure_limits

    peaks = {threads: measure_limits(threads, Config.from_env()).fma for threads in numbers(arguments.threads)}
    every: dict[int, list[list[float]]] = {threads: [] for threads in peaks}
    for layer, threads in itertools.product(layers(arguments), peaks):
        folders = [folder / layer.name for folder in arguments.folders]
        made = [session(folders[0].with_suffix(".onnx"), threads)]
        made += [session(f / "model.onnx", threads, next(f.glob("*.so"))) for f in folders]
        for steps, rows in itertools.product(numbers(arguments.steps), numbers(arguments.rows)):
            x = np.random.default_rng(1).standard_normal((steps, rows, layer.width)).astype(np.float32)
            stock, ratios = compare([runner(m, x) for m in made], arguments.rounds, arguments.seconds, threads)
            every[threads].append(ratios)
            rates = [layer.flops(steps, rows) / stock * r for r in ratios]
            shown = [f"{r:5.2f} {f / 1e9:6.1f} {f / peaks[threads]:4.0%}" for r, f in zip(ratios, rates, strict=True)]
            sizes = f"{layer.name:24} threads {threads} steps {steps:3} rows {rows:2}"
            print(f"{sizes} stock {stock * 1e6:9.1f} us  {'  '.join(shown)}", flush=True)
    for threads, found in every.items():
        for place, folder in enumerate(arguments.folders):
            of = sorted(ratios[place] for ratios in found)
            mean = statistics.geometric_mean(of)
            print(f"{folder} threads {threads}: geometric mean {mean:.3f}, worst {of[0]:.2f}, at least 1.3: "
                  f"{sum(r >= 1.3 for r in of)} of {len(of)}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("build", "time"))
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--ops", default="lstm,gru")
    parser.add_argument("--hidden", default="64,128,256,512")
    parser.add_argument("--width", default="80")
    parser.add_argument("--directions", default="1,2")
    parser.add_argument("--steps", default="1,20,100")
    parser.add_argument("--rows", default="1,4,16,64")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=0.01)
    parser.add_argument("--level", default="v3")
    arguments = parser.parse_args()
    {"build": build, "time": timed}[arguments.verb](arguments)


if __name__ == "__main__":
    main()
