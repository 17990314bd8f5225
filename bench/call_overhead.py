"""What a call costs: models of one op, in turns, in one process.

    python bench/call_overhead.py [--rounds 600] [--calls 32] [--case "ten inputs"]

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
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper
from torch._dynamo.backends.common import aot_autograd

import smelt

LIMIT = 1.5


@dataclass(frozen=True)
class Case:
    """A model of one op over `inputs` tensors of one shape. `free`: compiled for all sizes."""

    inputs: int = 1
    shape: tuple[int, ...] = (4, 16)
    free: bool = False


CASES = {
    "one op": Case(),
    "ten inputs": Case(inputs=10),
    "free sizes": Case(free=True),
    "a larger result": Case(shape=(64, 256)),
}


class OneOp(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


class SameOp(torch.nn.Module):
    """Code of its own: guards of two compiled functions over one code object are tried one after the other."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


class JoinTen(torch.nn.Module):
    def forward(self, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any, i: Any, j: Any) -> torch.Tensor:
        return torch.cat((a, b, c, d, e, f, g, h, i, j))


class SameTen(torch.nn.Module):
    def forward(self, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any, i: Any, j: Any) -> torch.Tensor:
        return torch.cat((a, b, c, d, e, f, g, h, i, j))


def plain_session(case: Case) -> onnxruntime.InferenceSession:
    names = [f"x{at}" for at in range(case.inputs)]
    sizes = ["n", *case.shape[1:]] if case.free else case.shape
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes) for name in names]
    joined = case.inputs > 1
    first = case.inputs * case.shape[0] if joined else sizes[0]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [first, *sizes[1:]])
    node = helper.make_node("Concat" if joined else "Relu", names, ["y"], **({"axis": 0} if joined else {}))
    graph = helper.make_graph([node], "one_op", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def nothing(graph: Any, inputs: Sequence[Any]) -> Callable[[list[Any]], list[torch.Tensor]]:
    """A compiler for AOTAutograd whose function does nothing."""
    del graph, inputs
    made = [torch.zeros(4, 16)]

    def run(args: list[Any]) -> list[torch.Tensor]:
        args.clear()
        return made

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def contestants(case: Case) -> dict[str, Callable[[], Any]]:
    given = [torch.randn(case.shape) for _ in range(case.inputs)]
    feeds = {f"x{at}": x.numpy() for at, x in enumerate(given)}
    session = plain_session(case)
    names = ["y"]
    kind, same = (OneOp, SameOp) if case.inputs == 1 else (JoinTen, SameTen)
    free = True if case.free else None
    wrapper = smelt.compile(kind().eval(), threads=1)
    compiled = torch.compile(kind().eval(), backend="smelt", options={"threads": 1}, dynamic=free)
    empty = torch.compile(
        same().eval(), backend=aot_autograd(fw_compiler=nothing, inference_compiler=nothing), dynamic=free
    )
    assert np.array_equal(session.run(names, feeds)[0], wrapper(*given).numpy())
    assert np.array_equal(session.run(names, feeds)[0], compiled(*given).numpy())
    return {
        "session.run": lambda: session.run(names, feeds),
        "wrapper": lambda: wrapper(*given),
        "torch.compile smelt": lambda: compiled(*given),
        "torch.compile empty": lambda: empty(*given),
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


def measure_case(name: str, rounds: int, calls: int) -> None:
    print(f"{name}:")
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage] - no case may find what another compiled
    with torch.no_grad():
        found = times(contestants(CASES[name]), rounds, calls)
    for contestant, taken in found.items():
        print(f"  {contestant:20} lowest {min(taken):6.2f} us, median {statistics.median(taken):6.2f} us")
    for kind, measure in (("lowest", min), ("median", statistics.median)):
        at = {contestant: measure(taken) for contestant, taken in found.items()}
        wrapper = at["wrapper"] / at["session.run"]
        added = (at["torch.compile smelt"] - at["torch.compile empty"]) / at["session.run"]
        print(f"  {kind}: wrapper {wrapper:.2f}, torch.compile {added:.2f} times session.run (at most {LIMIT})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--calls", type=int, default=32)
    parser.add_argument("--case", choices=list(CASES), default=None)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for name in CASES if chosen.case is None else [chosen.case]:
        measure_case(name, chosen.rounds, chosen.calls)


if __name__ == "__main__":
    main()
