"""A whole model by each way in: the compiled ONNX file, the wrapper, and `torch.compile`, in turns, in one process.

    python bench/freeze.py [--model distilbert] [--scale full] [--length 128] [--threads 1] [--rounds 15] [--calls 3]

The yardstick is the session over the artifact that `smelt.compile("model.onnx")` makes, run with inputs bound ahead.
Every round times every contestant, after one call that belongs to nobody, in an order that changes. Printed is a
contestant's time divided by the yardstick's in the same round, estimated over the rounds as `smelt bench` does it, with
the 95% interval: above 1 is slower. With `freeze=True`, and for the wrapper, at most 1.03 is wanted.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import smelt
from smelt.base import Config
from smelt.bench import zoo
from smelt.bench.paired import paired_ratio

LIMIT = 1.03
YARDSTICK = "ONNX file"
Call = Callable[[], Any]


def bound(session: Any, feeds: dict[str, Any]) -> Call:
    """The session with its inputs bound once; its results lie in new memory each time."""
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    for output in session.get_outputs():
        binding.bind_output(output.name)
    return lambda: session.run_with_iobinding(binding) or binding.get_outputs()[0]


def contestants(chosen: argparse.Namespace) -> dict[str, Call]:
    feeds = zoo.feeds(chosen.model, chosen.batch, chosen.length, chosen.scale)
    given = [torch.from_numpy(array) for array in feeds.values()]
    made = smelt.compile(zoo.export(chosen.model, Config.from_env(), chosen.scale), threads=chosen.threads)
    session: Any = made.executable.session
    names = [argument.name for argument in session.get_inputs()]
    module = zoo.module(chosen.model, chosen.scale)
    found: dict[str, Call] = {YARDSTICK: bound(session, dict(zip(names, feeds.values(), strict=True)))}
    wanted = session.run(None, dict(zip(names, feeds.values(), strict=True)))[0]
    for name, compiled in _compiled(module, chosen.threads).items():
        np.testing.assert_allclose(_first(compiled(*given)).numpy(), wanted, rtol=1e-3, atol=1e-4)
        found[name] = lambda compiled=compiled: compiled(*given)
    return found


def _compiled(module: torch.nn.Module, threads: int) -> dict[str, Any]:
    options = {"threads": threads}
    return {
        "smelt.compile(module)": smelt.compile(module, threads=threads),
        "freeze=True": torch.compile(module, backend="smelt", options={**options, "freeze": True}),
        "freeze=False": torch.compile(_copied(module), backend="smelt", options=options),
        "eager": module,
    }


def _copied(module: torch.nn.Module) -> Callable[..., Any]:
    """Code of its own: guards of two compiled functions over one code object are tried one after the other."""
    return lambda *args: module(*args)


def _first(result: Any) -> torch.Tensor:
    return result if isinstance(result, torch.Tensor) else next(iter(result))


def times(calls: dict[str, Call], rounds: int, repeats: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            calls[name]()
            started = time.perf_counter()
            for _ in range(repeats):
                calls[name]()
            found[name].append((time.perf_counter() - started) / repeats)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("batch", 1), ("length", 128), ("threads", 1), ("rounds", 15), ("calls", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--model", default="distilbert")
    parser.add_argument("--scale", default="full", choices=("full", "small", "tiny"))
    chosen = parser.parse_args()
    random.seed(0)
    torch.set_num_threads(chosen.threads)
    with torch.no_grad():
        found = times(contestants(chosen), chosen.rounds, chosen.calls)
    print(f"{chosen.model} {chosen.scale}, {chosen.batch} x {chosen.length}, {chosen.threads} threads:")
    for name, taken in found.items():
        ratio = paired_ratio(taken, found[YARDSTICK])
        note = f", median {1e3 * statistics.median(taken):8.2f} ms, lowest {1e3 * min(taken):8.2f} ms"
        print(f"  {name:22} {ratio.value:5.3f} [{ratio.low:.3f}, {ratio.high:.3f}] of the file's time{note}")


if __name__ == "__main__":
    main()
