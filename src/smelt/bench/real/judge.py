"""Whether an artifact is right on a model that nobody here made: a process of its own, since either may crash.

Input: on stdin a JSON object: model, artifact, feeds (one file for each size), threads. Output: on stdout one JSON line
for each size. Invariant: results are compared with stock ONNX Runtime without its optimizers; the yardstick is stock
with them, and how far stock itself moves when its inputs move by their last place. Only where that does not do, both
are held against the float64 reference: rounding of stock's own must not make a right result wrong.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from smelt.bench.peers import Array, read_feeds
from smelt.runtime import SessionSettings, session_for


@dataclass(frozen=True)
class Judged:
    """One size. `problem` is empty where the contract holds."""

    shapes: str
    error: float | None = None
    stock_error: float | None = None
    problem: str = ""

    @property
    def right(self) -> bool:
        return not self.problem


def main() -> None:
    job = json.load(sys.stdin)
    answers, sys.stdout = sys.stdout, sys.stderr
    for path in job["feeds"]:
        feeds = read_feeds(Path(path))
        found = judge(Path(job["model"]), Path(job["artifact"]), feeds, job["threads"])
        print(json.dumps(asdict(found)), file=answers, flush=True)


def judge(model: Path, artifact: Path, feeds: dict[str, Array], threads: Sequence[int]) -> Judged:
    """The worst over all numbers of threads."""
    from smelt.runtime import Executable

    shapes = shapes_text(feeds)
    worst = Judged(shapes, 0.0, 0.0)
    for count in threads:  # some of stock's own kernels give other results with other numbers of threads
        plain = session_for(model, None, SessionSettings(threads=count, optimization="disable", log_severity=4))
        try:
            reference = plain.run(None, feeds)
        except Exception as error:  # the feeds are to blame
            return Judged(shapes, problem=f"stock refuses the inputs: {_line(error)}")
        stock = _optimized(model, feeds, count)
        try:
            run = Executable.open(artifact, SessionSettings(threads=count)).run
            results = run(feeds)
        except Exception as error:
            if stock is None:  # users' stock refuses such sizes too
                continue
            return Judged(shapes, problem=f"{count} threads: {_line(error)}")
        stock = reference if stock is None else stock
        nearby = partial(plain.run, None, _moved(feeds))
        found = _compared(model, results, reference, stock, nearby)
        if found.problem:
            found = _by_contract(model, feeds, results, reference)
        problem = found.problem or ("" if count != threads[0] else _overflow(plain, run, feeds))
        one = Judged(shapes, _finite(found.error), _finite(found.stock_error), problem)
        worst = max(worst, one, key=lambda judged: (bool(judged.problem), judged.error or 0.0))
    return worst


def _optimized(model: Path, feeds: dict[str, Array], threads: int) -> Sequence[Any] | None:
    """What stock gives with its optimizers; None where these make it refuse what it takes without them."""
    try:
        return session_for(model, None, SessionSettings(threads=threads, log_severity=4)).run(None, feeds)
    except Exception:  # onnxruntime raises many kinds
        return None


def _compared(model: Path, results: Sequence[Any], reference: Sequence[Any], stock: Sequence[Any], moved: Any) -> Any:
    from smelt.check.contract import compare_all, has_steps
    from smelt.check.op_types import op_types_of
    from smelt.ir.load import load_model
    from smelt.ir.walk import model_nodes

    steps = has_steps(op_types_of(model_nodes(load_model(model))))
    return compare_all(results, reference, stock, "model", steps=steps, stock_is_reference=True, moved=moved)


def _by_contract(model: Path, feeds: dict[str, Array], results: Sequence[Any], reference: Sequence[Any]) -> Any:
    """By the float64 reference, or for quantized networks by their steps."""
    from smelt.check.judge import Judge
    from smelt.check.op_types import op_types_of
    from smelt.ir.load import load_model
    from smelt.ir.walk import model_nodes

    op_types = op_types_of(model_nodes(load_model(model)))
    return Judge(model, "model", op_types)(feeds, results, reference).comparison


def _overflow(plain: Any, run: Callable[[dict[str, Array]], Sequence[Any]], feeds: dict[str, Array]) -> str:
    """The same inputs up to a million: what stock keeps finite stays so."""
    from smelt.check.special_values import enlarged, overflows

    large = enlarged(feeds)
    if large is None:
        return ""
    try:
        stock = plain.run(None, large)
    except Exception:  # inputs that name places or sizes may not be so large
        return ""
    results = run(large)
    return "large inputs give NaN or inf, stock's are finite" if overflows(results, stock, range(len(stock))) else ""


def _moved(feeds: dict[str, Array]) -> dict[str, Array]:
    """Every float moved by one unit in its last place, up or down."""
    rng = np.random.default_rng(11)
    made = dict(feeds)
    for name, array in feeds.items():
        if array.dtype.kind == "f":
            towards = rng.choice(np.array([-np.inf, np.inf], array.dtype), array.shape)
            made[name] = np.asarray(np.nextafter(array, towards))
    return made


def shapes_text(feeds: dict[str, Array]) -> str:
    """`x 1x3x48x320`; scalars are left out."""
    return ", ".join(f"{name} {'x'.join(map(str, array.shape))}" for name, array in feeds.items() if array.ndim)


def _finite(value: float | None) -> float | None:
    return None if value is None else min(float(value), 1e300)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


if __name__ == "__main__":
    main()
