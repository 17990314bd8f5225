"""A timing process that begins while kernels are verified.

Input: the prepared model, and the file that stock ONNX Runtime runs. Output: what the process measured, once it was
told what to time. Invariant: it opens that file and finds inputs for it, and times nothing before it is asked; it
answers once, so that a second answer comes from a second process.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import onnx_ir as ir

from smelt.base.config import Config
from smelt.check.axis_sizes import named_dims
from smelt.check.feed_files import write_feeds
from smelt.check.findings import Examination
from smelt.check.inputs import every_attempt
from smelt.check.race import ASKED
from smelt.check.watch import Limits, Ran, Worker, limited
from smelt.toolchain import Cache

_MOST_BYTES: Final = 1 << 30  # of weights that the examining and the timing process have open at once


class RaceAhead:
    """The process, and the folder of its files; none before `begin`. `stock` is the file that the user gave, if any."""

    def __init__(self, stock: Path | None) -> None:
        self.stock = stock.absolute() if stock is not None else None
        self._stack = ExitStack()
        self._worker: Worker | None = None
        self.folder: Path | None = None

    def __enter__(self) -> RaceAhead:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def begin(self, model: ir.Model, wanted: Examination, config: Config) -> None:
        """Start it, once; not for a model that is no file, or too large."""
        weights = (value.const_value for value in model.graph.initializers.values())
        is_large = sum(tensor.nbytes for tensor in weights if tensor is not None) > _MOST_BYTES
        if self.folder is not None or self.stock is None or is_large:
            return
        self.folder = self._stack.enter_context(Cache(config.cache_dir).work())
        job = race_job(model, wanted, self.folder, self.stock, thread_counts(wanted, config))
        self._worker = Worker(self.folder, job=limited(job, race_limits(config)))
        self._stack.callback(self._worker.close)

    def race(self, asked: Mapping[str, Any], limits: Limits) -> Ran | None:
        """What came of it; None where there is no process that was not asked yet."""
        worker, self._worker = self._worker, None
        if worker is None or self.folder is None:
            return None
        half = self.folder / f"{ASKED}.half"
        half.write_text(json.dumps(asked), encoding="utf-8")
        half.rename(self.folder / ASKED)
        return worker.follow(limits)


def thread_counts(wanted: Examination, config: Config) -> list[int]:
    """One, whose processor time other programs do not disturb, so that few rounds decide; then as many as a session has
    by default."""
    usual = wanted.threads or config.threads or len(os.sched_getaffinity(0))
    return sorted({1, usual})


def race_job(model: ir.Model, wanted: Examination, folder: Path, stock: Path, threads: Sequence[int]) -> dict[str, Any]:
    """What a timing process has to know before there is anything to time."""
    if wanted.feeds:
        write_feeds(folder / "feeds.npz", wanted.feeds)
    original = wanted.original or model
    # Sizes that were given are those that count.
    dims = {} if wanted.feeds or wanted.shapes else {v.name: named_dims(v, original) for v in model.graph.inputs}
    return {
        "mode": "race", "size": "real", "attempt": 0, "threads": list(threads), "stock": str(stock),
        "feeds": "feeds.npz" if wanted.feeds else None, "dims": dims,
        "recipes": every_attempt(model, "real", wanted.feeds or {}, wanted.shapes),
    }  # fmt: skip


def race_limits(config: Config) -> Limits:
    return Limits(config.verify_timeout_s, config.verify_timeout_s, config.verify_memory_bytes)
