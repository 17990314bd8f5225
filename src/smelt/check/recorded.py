"""Dumped models with the calls that were recorded beside them.

Input: a folder of `0000.onnx` with `0000.call0.inputs.npz` and `0000.call0.outputs.npz`, as `smelt.dump` writes it; a
function that runs a model. Output: a `Replayed` per call: how far the results are from the recorded ones. Invariant:
files are never unpickled; bfloat16, which numpy lacks, is kept as float32 and fed in the model's own type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from smelt.base.errors import InputError
from smelt.check.contract import compare
from smelt.check.feed_files import read_feeds, write_feeds
from smelt.ir.load import load_model

Array = np.ndarray[Any, Any]
Run = Callable[[Path, Mapping[str, Array]], Mapping[str, Array]]
_CALL: Final = re.compile(r"\.call(\d+)\.inputs\.npz$")


@dataclass(frozen=True)
class Call:
    """One recorded call of a dumped model."""

    model: Path
    number: int

    @property
    def inputs_path(self) -> Path:
        return _beside(self.model, self.number, "inputs")

    def inputs(self) -> dict[str, Array]:
        """Arrays in the types that the model takes."""
        kinds = {value.name: value.dtype for value in load_model(self.model).graph.inputs}
        return {name: _as(array, kinds.get(name)) for name, array in read_feeds(self.inputs_path).items()}

    def outputs(self) -> dict[str, Array]:
        return read_feeds(_beside(self.model, self.number, "outputs"))


@dataclass(frozen=True)
class Replayed:
    """`error` is relative to |recorded| + rms(recorded), the worst of all outputs; `problem` is empty when right."""

    call: Call
    nodes: int
    error: float
    problem: str


def record_call(model: Path, number: int, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
    """Keep a call of a dumped model."""
    write_feeds(_beside(model, number, "inputs"), inputs)
    write_feeds(_beside(model, number, "outputs"), outputs)


def recorded_calls(place: Path) -> list[Call]:
    """The calls of a dumped model, or of every model of a folder, in the order they came."""
    if not place.exists():
        raise InputError("SM-INPUT-003", f"there is no {place}", hint="Give a folder that smelt.dump wrote.")
    models = [place] if place.is_file() else sorted(place.glob("*.onnx"))
    found = [call for model in models for call in _calls(model)]
    if not found:
        raise InputError(
            "SM-INPUT-003", f"{place} holds no recorded call", hint="Dump it by `with smelt.dump(folder):` and call it."
        )
    return found


def replay(call: Call, run: Run, tolerance: float) -> Replayed:
    """Run a call again and compare."""
    nodes = sum(1 for _ in load_model(call.model).graph)
    try:
        found = run(call.model, call.inputs())
    except Exception as error:  # whatever a runtime raises is the answer
        return Replayed(call, nodes, float("inf"), f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    worst, problem = 0.0, ""
    for name, recorded in call.outputs().items():
        result = np.asarray(found[name])
        same = compare(result.astype(recorded.dtype), recorded, None, tolerance)
        worst = max(worst, same.error)
        if same.problem and not problem:
            problem = f"{name}: {same.problem}"
    return Replayed(call, nodes, worst, problem)


def _calls(model: Path) -> Iterator[Call]:
    places = [_CALL.search(path.name) for path in model.parent.glob(f"{model.stem}.call*.inputs.npz")]
    numbers = sorted(int(place.group(1)) for place in places if place is not None)
    yield from (Call(model, number) for number in numbers)


def _beside(model: Path, number: int, what: str) -> Path:
    return model.with_name(f"{model.stem}.call{number}.{what}.npz")


def _as(array: Array, dtype: ir.DataType | None) -> Array:
    return array if dtype is None or dtype == ir.DataType.STRING else array.astype(dtype.numpy(), copy=False)
