"""A kernel of the user's own against the same computation as built-in ops: both compiled, interleaved in one process.

    python bench/user_kernels.py [--rounds 15]

Printed is the time of the built-in form over that of the user's C, with its interval: 1 means that C of the user's is
fused and vectorized as built-in ops are. Both models have the same node before and after the op.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import smelt
from smelt.bench.timing import Pace, interleave

ROWS, COLUMNS = 256, 3072
SNAKE = "float snake(float x, float alpha) { float s = sinf(alpha * x); return x + s * s / alpha; }"
RMS = """
void rms(const float *x, float *y, int64_t n, float eps) {
  float total = 0;
  for (int64_t i = 0; i < n; i++) total += x[i] * x[i];
  const float scale = 1.0f / sqrtf(total / n + eps);
  for (int64_t i = 0; i < n; i++) y[i] = x[i] * scale;
}
"""


@smelt.kernel("bench::Snake", SNAKE)
def snake(x: Any, alpha: float = 2.0) -> Any:
    return x + np.sin(alpha * x) ** 2 / alpha


@smelt.kernel("bench::Rms", RMS)
def rms(x: Any, eps: float = 1e-6) -> Any:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def _model(inner: Sequence[onnx.NodeProto], numbers: dict[str, float]) -> onnx.ModelProto:
    """Tanh, the op over `n`, and a sum with the input."""
    nodes = [helper.make_node("Tanh", ["x"], ["n"]), *inner, helper.make_node("Add", ["o", "x"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", COLUMNS]) for name in "xy"]
    constants = [helper.make_tensor(name, TensorProto.FLOAT, [], [value]) for name, value in numbers.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("bench", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _pairs() -> dict[str, tuple[onnx.ModelProto, onnx.ModelProto]]:
    node = helper.make_node
    snakes = [
        node("Mul", ["n", "alpha"], ["a"]), node("Sin", ["a"], ["s"]), node("Mul", ["s", "s"], ["q"]),
        node("Div", ["q", "alpha"], ["d"]), node("Add", ["n", "d"], ["o"]),
    ]  # fmt: skip
    norms = [
        node("Mul", ["n", "n"], ["q"]), node("ReduceMean", ["q"], ["m"], axes=[-1]), node("Add", ["m", "eps"], ["e"]),
        node("Sqrt", ["e"], ["r"]), node("Div", ["n", "r"], ["o"]),
    ]  # fmt: skip
    return {
        "element (Snake)": (
            _model(snakes, {"alpha": 2.0}), _model([node("Snake", ["n"], ["o"], domain="bench", alpha=2.0)], {}),
        ),
        "row (RMS norm)": (_model(norms, {"eps": 1e-6}), _model([node("Rms", ["n"], ["o"], domain="bench")], {})),
    }  # fmt: skip


class _Runner:
    def __init__(self, proto: onnx.ModelProto, x: np.ndarray[Any, Any]) -> None:
        self.compiled: Any = smelt.compile(proto, threads=1, timing=False)
        self.feeds = {"x": x}

    def run(self, repeat: int, warm: int = 0) -> list[float]:
        import time

        out: list[float] = []
        for _ in range(warm + repeat):
            before = time.perf_counter()
            self.compiled.run(self.feeds)
            out.append(time.perf_counter() - before)
        return out[warm:]


def main() -> None:
    parser = argparse.ArgumentParser(description="A kernel of the user's own against built-in ops.")
    parser.add_argument("--rounds", type=int, default=15)
    pace = Pace(rounds=parser.parse_args().rounds, slice_s=0.1)
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    for name, (built_in, own) in _pairs().items():
        runners = [_Runner(proto, x) for proto in (built_in, own)]
        answers = [runner.compiled.run(runner.feeds)[0] for runner in runners]
        first, second = interleave(runners, pace)
        error = float(np.abs(answers[0] - answers[1]).max())
        print(f"{name:18} built-in {first.median * 1e6:.0f} us, own {second.median * 1e6:.0f} us, "
              f"{second.ratio_to(first)}, largest difference {error:.1e}")  # fmt: skip


if __name__ == "__main__":
    main()
