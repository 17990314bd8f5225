"""What a call costs: a model of one op, in turns, in one process.

    python bench/call_overhead.py [--rounds 600] [--calls 32]

Timed are `session.run` with numpy arrays, the wrapper (`smelt.compile(module)`), `torch.compile(backend="smelt")` and
`torch.compile` with an empty AOTAutograd backend, whose function returns a tensor that was made before. Printed are the
lowest and the median time of a call over many short rounds, and the two ratios that count. Small results are made 16 at
a time, so a round has a multiple of 16 calls: fewer would leave that out of the lowest time.

    wrapper / session.run,  (torch.compile with smelt - with the empty backend) / session.run
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper
from torch._dynamo.backends.common import aot_autograd

import smelt

SHAPE = (4, 16)
LIMIT = 1.5


class OneOp(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


class SameOp(torch.nn.Module):
    """Code of its own: guards of two compiled functions over one code object are tried one after the other."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


def plain_session() -> onnxruntime.InferenceSession:
    node = helper.make_node("Relu", ["x"], ["y"])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in "xy")
    graph = helper.make_graph([node], "one_op", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def nothing(graph: Any, inputs: Sequence[Any]) -> Callable[[list[Any]], list[torch.Tensor]]:
    """A compiler for AOTAutograd whose function does nothing."""
    del graph, inputs
    made = [torch.zeros(SHAPE)]

    def run(args: list[Any]) -> list[torch.Tensor]:
        args.clear()
        return made

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def contestants() -> dict[str, Callable[[], Any]]:
    x = torch.randn(SHAPE)
    feeds = {"x": x.numpy()}
    session = plain_session()
    names = ["y"]
    wrapper = smelt.compile(OneOp().eval(), threads=1)
    compiled = torch.compile(OneOp().eval(), backend="smelt", options={"threads": 1})
    empty = torch.compile(SameOp().eval(), backend=aot_autograd(fw_compiler=nothing, inference_compiler=nothing))
    assert np.array_equal(session.run(names, feeds)[0], wrapper(x).numpy())
    assert np.array_equal(session.run(names, feeds)[0], compiled(x).numpy())
    return {
        "session.run": lambda: session.run(names, feeds),
        "wrapper": lambda: wrapper(x),
        "torch.compile smelt": lambda: compiled(x),
        "torch.compile empty": lambda: empty(x),
    }


def times(calls: dict[str, Callable[[], Any]], rounds: int, repeats: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            call()  # the round before belonged to another
            started = time.perf_counter_ns()
            for _ in range(repeats):
                call()
            found[name].append((time.perf_counter_ns() - started) / repeats / 1e3)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--calls", type=int, default=32)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        found = times(contestants(), chosen.rounds, chosen.calls)
    for name, taken in found.items():
        print(f"{name:20} lowest {min(taken):6.2f} us, median {statistics.median(taken):6.2f} us")
    for kind, measure in (("lowest", min), ("median", statistics.median)):
        at = {name: measure(taken) for name, taken in found.items()}
        wrapper = at["wrapper"] / at["session.run"]
        added = (at["torch.compile smelt"] - at["torch.compile empty"]) / at["session.run"]
        print(f"{kind}: wrapper {wrapper:.2f}, torch.compile {added:.2f} times session.run (at most {LIMIT})")


if __name__ == "__main__":
    main()
