"""Inputs for a run, from files and generated.

Input: a loaded model, shapes and files that the user named, a seed. Output: arrays by input, in a few attempts of
falling ambition. Invariant: what the user gave is used as it is; one size has one value in all inputs; files are
never unpickled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import onnx_ir as ir

from smelt.base.errors import InputError
from smelt.check.inputs import ATTEMPTS, make_feeds

Answer = TypeVar("Answer")


def feed_attempts(
    model: ir.Model,
    shapes: Mapping[str, tuple[int, ...]],
    files: Mapping[str, Path],
    seed: int,
    size: Literal["small", "real"] = "real",
    arrays: Mapping[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """Feeds to try one after the other: generated contents are guesses, and some models refuse the first.

    The model's input shapes are bound to what the user gave: in files, or as `arrays`.
    """
    given = {**{name: _read(model, name, path) for name, path in files.items()}, **(arrays or {})}
    _bind(model, {**{name: array.shape for name, array in given.items()}, **shapes})
    free = [v.name for v in _inputs(model) if v.name not in given]
    if not free:
        yield given
        return
    made = 0
    for attempt in range(ATTEMPTS):
        feeds = make_feeds(model, size, attempt, seed)
        if feeds is not None:
            made += 1
            yield {**feeds, **given}
    if not made:
        raise InputError(
            "SM-INPUT-001", f"inputs {', '.join(map(repr, free))} cannot be generated", hint="Give them by --input."
        )


def first_that_runs(
    attempts: Iterator[dict[str, Any]], run: Callable[[dict[str, Any]], Answer]
) -> tuple[dict[str, Any], Answer]:
    """The first feeds that `run` takes, and its answer; the first error where none does."""
    first: Exception | None = None
    for feeds in attempts:
        try:
            return feeds, run(feeds)
        except Exception as error:
            first = first or error
    assert first is not None
    raise first


def _inputs(model: ir.Model) -> list[ir.Value]:
    return [v for v in model.graph.inputs if v.name and v.name not in model.graph.initializers]


def _read(model: ir.Model, name: str, path: Path) -> Any:
    known = [v.name for v in model.graph.inputs]
    if name not in known:
        raise InputError("SM-INPUT-001", f"the model has no input {name!r}; it has {', '.join(map(str, known))}")
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(
            "SM-INPUT-003", f"{path} cannot be read as .npy: {error}", hint="Write it by numpy.save."
        ) from None


def _bind(model: ir.Model, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Put the sizes into the inputs' shapes: of the inputs named, and of others that share a named size."""
    inputs = {v.name: v for v in _inputs(model)}
    sizes: dict[str, int] = {}
    for name, shape in shapes.items():
        value = inputs.get(name)
        if value is None:
            raise InputError("SM-INPUT-001", f"the model has no input {name!r}; it has {', '.join(map(str, inputs))}")
        declared = value.shape
        if declared is not None and len(declared) != len(shape):
            message = f"input {name!r} was given {len(shape)} dims, the model takes {len(declared)}"
            raise InputError("SM-INPUT-003", message)
        for dim, size in zip(declared or (), shape, strict=False):
            if isinstance(dim, int) and dim != size:
                raise InputError("SM-INPUT-003", f"input {name!r} was given size {size} where the model takes {dim}")
            if not isinstance(dim, int) and dim.value:
                sizes.setdefault(dim.value, size)
        value.shape = ir.Shape(shape)
    for value in inputs.values():
        if value.shape is not None:
            value.shape = ir.Shape([d if isinstance(d, int) else sizes.get(d.value or "", d) for d in value.shape])
