"""How accurate a lower precision is, and which layers go back to a wider type until a budget holds.

Input: a float32 model with what it answers to some calls; a precision; a budget in dB of each output, or of a user's
metric. Output: `Search`: the layers that stay wide, a table of all, and what was measured on the way. Invariant:
outputs are measured, never predicted; predictions only decide which layer goes back first: that whose noise at the
outputs, for the time that it saves, is largest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from smelt.base.config import Config
from smelt.base.errors import PrecisionError
from smelt.base.progress import Progress, Silent
from smelt.check.answers import Answers, Asked, LayerWeights, ask, decibels_of, powers
from smelt.check.calibration import Calls, quantize_static
from smelt.ir.save import save_model
from smelt.ir.walk import model_nodes
from smelt.passes import LAYERS, STATIC, narrow_layers, rounded_rows

Outputs = Sequence[Mapping[str, Any]]
Metric = Callable[[Outputs, Outputs], float]  # of the float32 outputs and those to judge, call by call; more is better
_LEAST: Final = 1024  # elements of weights that static int8 is asked for


@dataclass(frozen=True)
class Layer:
    """`noise_db`: the ratio of signal to noise of the worst output when this layer's weights alone are narrow."""

    name: str
    op_type: str
    elements: int
    share: float  # of the multiply-adds of all layers
    noise_db: float
    wide: bool = False


@dataclass(frozen=True)
class Point:
    """What was measured with so many layers wide: `time` is the share of multiply-adds that stay narrow."""

    wide: int
    narrow_share: float
    value: float


@dataclass(frozen=True)
class Search:
    layers: tuple[Layer, ...] = ()
    curve: tuple[Point, ...] = ()

    @property
    def wide(self) -> tuple[str, ...]:
        return tuple(layer.name for layer in self.layers if layer.wide)


@dataclass(frozen=True)
class Judging:
    """What is asked of the outputs; `metric` is None for the least ratio of signal to noise of an output, in dB."""

    budget: float
    metric: Metric | None = None

    @property
    def unit(self) -> str:
        return "dB" if self.metric is None else "by the metric"

    def value(self, wanted: Outputs, made: Outputs) -> float:
        if self.metric is not None:
            return float(self.metric(wanted, made))
        return min((decibels_of(*found) for found in powers(wanted, made).values()), default=float("inf"))


@dataclass
class Budget:
    """A search. `model` is prepared and its layers have names; `wide` is what the float32 model answers to `calls`."""

    model: ir.Model
    precision: str
    calls: Calls
    wide: Answers
    judging: Judging
    folder: Path
    config: Config
    progress: Progress = field(default_factory=Silent)

    def run(self) -> Search:
        layers = self._layers()
        order = sorted(layers, key=lambda one: -(10 ** (-one.noise_db / 10)) / max(one.share, 1e-9))
        curve: list[Point] = []
        step = self.progress.task("budget", len(order).bit_length() + 1)

        def holds(count: int) -> bool:
            names = [layer.name for layer in order[:count]]
            value = self._value(names, len(curve))
            curve.append(Point(count, 1 - sum(layer.share for layer in order[:count]), value))
            step(f"{count} layers wide")
            return value >= self.judging.budget

        count = _fewest(len(order), holds)
        if count is None:
            best = max(curve, key=lambda point: point.value)
            raise PrecisionError(
                "SM-PRECISION-003",
                f"no choice of layers reaches {self.judging.budget:g} {self.judging.unit}; the best is "
                f"{best.value:.4g} with {best.wide} of {len(order)} layers left wide",
            )
        kept = {layer.name for layer in order[:count]}
        marked = tuple(Layer(*(getattr(one, n) for n in _FIELDS), wide=one.name in kept) for one in layers)
        return Search(marked, tuple(sorted(curve, key=lambda point: point.wide)))

    def _layers(self) -> list[Layer]:
        """All that the precision narrows, with the noise that each makes at the outputs."""
        chosen = self._narrowed_names()
        nodes = [node for node in model_nodes(self.model) if node.name in chosen]
        work = {node.name or "": _multiply_adds(node) for node in nodes}
        total = max(1.0, sum(work.values()))
        noise = self._noise(nodes)
        return [
            Layer(
                node.name or "", node.op_type, _weights_of(node).const_value.size,  # pyright: ignore[reportOptionalMemberAccess]
                work[node.name or ""] / total, decibels_of(1.0, noise.get(node.name or "", 0.0)),
            )
            for node in nodes
        ]  # fmt: skip

    def _narrowed_names(self) -> set[str]:
        if self.precision == STATIC:
            return {n.name or "" for n in model_nodes(self.model) if n.op_type in LAYERS and _is_weight(_weights_of(n))}
        return {done.name for done in narrow_layers(self.model.clone(), self.precision)}

    def _noise(self, nodes: Sequence[ir.Node]) -> dict[str, float]:
        """Weights become inputs that a call may replace: one session serves all layers."""
        copy = self.model.clone()
        found = {node.name: _weights_of(node) for node in model_nodes(copy)}
        layers: list[LayerWeights] = []
        for node in nodes:
            weights = found[node.name]
            if weights not in copy.graph.inputs:
                copy.graph.inputs.append(weights)
            layers.append(LayerWeights(node.name or "", weights.name or "", _columns_last(node)))
        path = self.folder / "layers.onnx"
        save_model(copy, path, data_name="layers.data")
        asked = Asked(path, self.calls[:1], layers, self.precision)
        answers = ask(asked, self.folder / "layers", self.config)
        return {} if isinstance(answers, str) else dict(answers.noise)

    def _value(self, keep: Sequence[str], number: int) -> float:
        """Measured on stock ONNX Runtime, of which kernels are no farther than their tolerance."""
        path = self.folder / f"candidate{number}.onnx"
        if self.precision == STATIC:
            source = self.folder / "prepared.onnx"
            if not source.exists():
                save_model(self.model, source, data_name="prepared.data")
            path = quantize_static(source, self.calls, keep, self.folder / f"static{number}", self.config)
        else:
            candidate = self.model.clone()
            narrow_layers(candidate, self.precision, keep)
            rounded_rows(candidate)
            save_model(candidate, path, data_name=f"candidate{number}.data")
        made = ask(Asked(path, self.calls), self.folder / f"answers{number}", self.config)
        return float("-inf") if isinstance(made, str) else self.judging.value(self.wide.calls, made.calls)


_FIELDS: Final = ("name", "op_type", "elements", "share", "noise_db")


def _fewest(count: int, holds: Callable[[int], bool]) -> int | None:
    """The least number that holds, by bisection; None where not even all do."""
    if holds(0):
        return 0
    if not holds(count):
        return None
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _weights_of(node: ir.Node) -> ir.Value:
    """The operand that is a constant: the second one, or the first of a product."""
    second, first = (node.inputs[1] if len(node.inputs) > 1 else None), node.inputs[0] if node.inputs else None
    chosen = second if _is_weight(second) or not _is_weight(first) else first
    return chosen if chosen is not None else ir.Value()


def _is_weight(value: ir.Value | None) -> bool:
    if value is None or value.const_value is None:
        return False
    tensor = value.const_value
    return tensor.dtype == ir.DataType.FLOAT and len(tensor.shape) >= 2 and tensor.size >= _LEAST


def _columns_last(node: ir.Node) -> bool:
    flag = node.attributes.get("transB")
    return node.op_type == "MatMul" or (node.op_type == "Gemm" and not (flag is not None and flag.as_int()))


def _multiply_adds(node: ir.Node) -> float:
    """Those of one row, or of all pixels where the image's size is known."""
    shape = node.outputs[0].shape
    known = [size for size in (shape or ())[2:] if isinstance(size, int)] if node.op_type.startswith("Conv") else []
    tensor = _weights_of(node).const_value
    return float(np.prod(known, dtype=np.float64) if known else 1.0) * prod(tensor.shape.numpy() if tensor else (0,))
