"""Run a model in stock ONNX Runtime and compiled by smelt, and print both."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

import smelt

Feeds = Mapping[str, np.ndarray]


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, relative to the value plus the output's root mean square."""
    if expected.size == 0:
        return 0.0
    wide = expected.astype(np.float64)
    return float(np.max(np.abs(found - wide) / (np.abs(wide) + np.sqrt(np.mean(wide**2)) + 1e-30)))


def fastest_ms(*calls: Callable[[], object], rounds: int = 7) -> list[float]:
    """The best time of each, taken in turns so that a busy moment hits all alike. `smelt bench` measures properly."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for place, call in enumerate(calls):
            started = time.perf_counter()
            call()
            best[place] = min(best[place], (time.perf_counter() - started) * 1e3)
    return best


def side_by_side(model: Path | onnx.ModelProto, sizes: Mapping[str, Feeds], worst: float = 1e-5) -> None:
    """One compilation, every size: times, and how far the results lie apart."""
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    stock = ort.InferenceSession(source, providers=["CPUExecutionProvider"])
    with smelt.compile(model) as fast:
        print(f"{fast.coverage}")
        print(f"{'size':24} {'stock ms':>9} {'smelt ms':>9} {'difference':>11}")
        for label, feeds in sizes.items():
            expected, found = stock.run(None, feeds), fast.run(feeds)
            error = max(relative_error(ours, theirs) for ours, theirs in zip(found, expected, strict=True))
            times = fastest_ms(lambda feeds=feeds: stock.run(None, feeds), lambda feeds=feeds: fast.run(feeds))
            print(f"{label:24} {times[0]:9.3f} {times[1]:9.3f} {error:11.1e}")
            assert error < worst, f"results differ by {error:.1e}"
