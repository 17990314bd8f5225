"""One compiled model under the numerics contract: against the reference, stock, itself on other threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from stress_models import Feeds

import smelt
from smelt.base import Config
from smelt.check.contract import compare_all
from smelt.ops.reference import evaluate_nodes
from smelt.runtime import Executable, SessionSettings

THREADS = (1, 2, 3)
CALLERS = 8


class Subject:
    """A model in stock ONNX Runtime, by the reference, and compiled, opened with several numbers of threads."""

    def __init__(self, model: onnx.ModelProto | Path, folder: Path, config: Config, least: float = 1.0) -> None:
        proto = onnx.load(str(model)) if isinstance(model, Path) else model
        self.graph = ir.from_proto(proto)
        self.stock = ort.InferenceSession(
            str(model) if isinstance(model, Path) else proto.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        with smelt.compile(model, folder / "artifact", config=config) as made:
            assert made.coverage.ratio >= least, made.explain()
        self.opened = {n: Executable.open(folder / "artifact", SessionSettings(threads=n)) for n in THREADS}

    def run(self, feeds: Feeds, threads: int = 2) -> list[np.ndarray]:
        return self.opened[threads].run(feeds)

    def reference(self, feeds: Feeds) -> list[np.ndarray]:
        env = {value: feeds[value.name] for value in self.graph.graph.inputs if value.name in feeds}
        evaluate_nodes(self.graph.graph, env, dict(self.graph.opset_imports))
        return [env[value] for value in self.graph.graph.outputs]

    def check(self, feeds: Feeds) -> None:
        """The contract: near the reference, or no further from it than 1.5 times stock."""
        stock = self.stock.run(None, feeds)
        found = compare_all(self.run(feeds), self.reference(feeds), stock, "model")
        assert not found.problem, found.problem

    def check_special(self, feeds: Feeds) -> None:
        """With NaN and infinities, to agree with stock is enough; the reference is asked where they differ."""
        result = self.run(feeds)
        stock = self.stock.run(None, feeds)
        if compare_all(result, stock, None, "model", stock_is_reference=True).problem:
            found = compare_all(result, self.reference(feeds), stock, "model")
            assert not found.problem, found.problem

    def check_threads(self, feeds: Feeds) -> None:
        """The same bits, whatever the number of threads."""
        first = self.run(feeds, THREADS[0])
        for threads in THREADS[1:]:
            for ours, theirs in zip(self.run(feeds, threads), first, strict=True):
                assert ours.tobytes() == theirs.tobytes(), f"{threads} threads give other bits than {THREADS[0]}"

    def check_callers(self, inputs: list[Feeds], rounds: int = 10) -> None:
        """Eight callers of one session at once, each with inputs of its own: as if each were alone."""
        alone = [self.run(feeds) for feeds in inputs]
        start = Barrier(CALLERS)

        def call(number: int) -> None:
            start.wait()
            for turn in range(rounds):
                place = (number + turn) % len(inputs)
                for ours, theirs in zip(self.run(inputs[place]), alone[place], strict=True):
                    assert ours.tobytes() == theirs.tobytes(), f"caller {number}, turn {turn}"

        with ThreadPoolExecutor(CALLERS) as pool:
            list(pool.map(call, range(CALLERS)))
