"""How accurate a lower precision is, and which layers go back to a wider type until a budget holds.

Input: a float32 model with what it answers to some calls; a precision; a budget in dB of each output, or of a user's
metric. Output: `Search`: the type of each layer, a table of all, and what was measured on the way. Invariant: outputs
are measured, never predicted; predictions only decide which layer takes its next wider type first: that which loses
most noise at the outputs for the bits that it takes more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from smelt.ir.load import load_model
from smelt.ir.save import save_model
from smelt.ir.walk import model_nodes
from smelt.passes import LAYERS, STATIC, WIDE, WIDER, Moments, Quantized, narrow_layers, rounded_rows

Outputs = Sequence[Mapping[str, Any]]
Metric = Callable[[Outputs, Outputs], float]  # of the float32 outputs and those to judge, call by call; more is better
BITS: Final = {"w4": 4.5, "w8": 9, "int8": 8, "int8-dynamic": 8, "bf16": 16, "fp16": 16, WIDE: 32}  # of a weight
_LEAST: Final = 1024  # elements of weights that static int8 is asked for


@dataclass(frozen=True)
class Layer:
    """`noise_db`: the ratio of signal to noise of the worst output when this layer's weights alone are narrow;
    `wide`: whether its `precision` is wider than the one that was asked for."""

    name: str
    op_type: str
    elements: int
    share: float  # of the multiply-adds of all layers
    noise_db: float
    precision: str = WIDE
    wide: bool = False


@dataclass(frozen=True)
class Point:
    """What was measured with so many layers wider: `narrow_share` is the share of bits saved that stay saved, each
    layer's by its multiply-adds."""

    wide: int
    narrow_share: float
    value: float


@dataclass(frozen=True)
class Search:
    layers: tuple[Layer, ...] = ()
    curve: tuple[Point, ...] = ()

    @property
    def assigned(self) -> dict[str, str]:
        return {layer.name: layer.precision for layer in self.layers}


@dataclass(frozen=True)
class _Step:
    """A layer takes a wider type: noise that goes, by share of multiply-adds and bits that come."""

    layer: str
    to: str
    order: float


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
    """A search. `model` is prepared and its layers have names; `wide` is what the float32 model answers to `calls`;
    `moments` are those of error feedback."""

    model: ir.Model
    precision: str
    calls: Calls
    wide: Answers
    judging: Judging
    folder: Path
    config: Config
    progress: Progress = field(default_factory=Silent)
    moments: Moments = field(default_factory=dict[str, Any])

    def run(self) -> Search:
        nodes = self._nodes()
        noise = {rung: self._noise(nodes, rung) for rung in (self.precision, *WIDER[self.precision][:-1])}
        layers = self._layers(nodes, noise[self.precision])
        steps = self._steps(layers, noise)
        curve: list[Point] = []
        step = self.progress.task("budget", len(steps).bit_length() + 1)

        def holds(count: int) -> bool:
            curve.append(self._point(layers, steps[:count], len(curve)))
            step(f"{curve[-1].wide} layers wider")
            return curve[-1].value >= self.judging.budget

        count = _fewest(len(steps), holds)
        if count is None:
            best = max(curve, key=lambda point: point.value)
            raise PrecisionError(
                "SM-PRECISION-003",
                f"no choice of layers reaches {self.judging.budget:g} {self.judging.unit}; the best is "
                f"{best.value:.4g} with {best.wide} of {len(layers)} layers left wide",
            )
        given = _assigned(steps[:count])
        marked = tuple(
            replace(one, precision=given.get(one.name, self.precision), wide=one.name in given) for one in layers
        )
        return Search(marked, tuple(sorted(curve, key=lambda point: (point.wide, -point.narrow_share))))

    def _nodes(self) -> list[ir.Node]:
        """All that the precision narrows."""
        chosen = self.narrowed_names()
        return [node for node in model_nodes(self.model) if node.name in chosen]

    def _layers(self, nodes: Sequence[ir.Node], noise: Mapping[str, float]) -> list[Layer]:
        """With the noise that each makes at the outputs."""
        work = {node.name or "": _multiply_adds(node) for node in nodes}
        total = max(1.0, sum(work.values()))
        return [
            Layer(
                node.name or "", node.op_type, _weights_of(node).const_value.size,  # pyright: ignore[reportOptionalMemberAccess]
                work[node.name or ""] / total, decibels_of(1.0, noise.get(node.name or "", 0.0)), self.precision,
            )
            for node in nodes
        ]  # fmt: skip

    def _steps(self, layers: Sequence[Layer], noise: Mapping[str, Mapping[str, float]]) -> list[_Step]:
        """The best first; those of one layer in the order of its types."""
        steps: list[_Step] = []
        for layer in layers:
            now, last = self.precision, float("inf")
            for rung in WIDER[self.precision]:
                less = noise[now].get(layer.name, 0.0) - (noise[rung].get(layer.name, 0.0) if rung else 0.0)
                cost = max(layer.share, 1e-9) * (BITS[rung] - BITS[now])
                last = min(last, max(less, 0.0) / cost)
                steps.append(_Step(layer.name, rung, last))
                now = rung
        return sorted(steps, key=lambda one: -one.order)

    def _point(self, layers: Sequence[Layer], steps: Sequence[_Step], number: int) -> Point:
        given = _assigned(steps)
        most = BITS[WIDE] - BITS[self.precision]
        lost = sum(
            one.share * (BITS[given[one.name]] - BITS[self.precision]) / most for one in layers if one.name in given
        )
        return Point(len(given), 1 - lost, self._value(given, number))

    def narrowed_names(self) -> set[str]:
        """The layers that the precision narrows."""
        if self.precision == STATIC:
            return {n.name or "" for n in model_nodes(self.model) if n.op_type in LAYERS and _is_weight(_weights_of(n))}
        return {done.name for done in narrow_layers(self.model.clone(), self.precision)[self.precision]}

    def _noise(self, nodes: Sequence[ir.Node], precision: str) -> dict[str, float]:
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
        asked = Asked(path, self.calls[:1], layers, precision)
        answers = ask(asked, self.folder / f"layers-{precision}", self.config)
        return {} if isinstance(answers, str) else dict(answers.noise)

    def _value(self, given: Mapping[str, str], number: int) -> float:
        """Measured on stock ONNX Runtime, of which kernels are no farther than their tolerance."""
        path, _ = lowered_model(self, given, self.folder / f"candidate{number}", rows=True)
        made = ask(Asked(path, self.calls), self.folder / f"answers{number}", self.config)
        return float("-inf") if isinstance(made, str) else self.judging.value(self.wide.calls, made.calls)


def lowered_model(
    of: Budget, given: Mapping[str, str], folder: Path, *, rows: bool = False
) -> tuple[Path, Mapping[str, list[Quantized]]]:
    """A file with the layers in their precisions, and what became of the weights; with `rows`, what kernels round too
    is rounded there. Static int8 has other nodes in 8 bits too, but where no layer is left."""
    model = of.model
    if of.precision == STATIC and not of.narrowed_names() <= given.keys():
        source = of.folder / "prepared.onnx"
        if not source.exists():
            save_model(model, source, data_name="prepared.data")
        made = quantize_static(source, of.calls, list(given), folder, of.config)
        if not any(given.values()):
            return made, {}
        model = load_model(made)
    candidate = model.clone()
    done = narrow_layers(candidate, of.precision, given, of.moments)
    if rows:
        rounded_rows(candidate)
    folder.mkdir(exist_ok=True)
    save_model(candidate, folder / "narrow.onnx", data_name="narrow.data")
    return folder / "narrow.onnx", done


def _assigned(steps: Sequence[_Step]) -> dict[str, str]:
    """By layer; a later step of one replaces its first."""
    return {step.layer: step.to for step in steps}


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
