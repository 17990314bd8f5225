"""Quantized networks are judged at their integers and steps.

Input: a model that quantizes, and answers to the same inputs that differ only in how ties were rounded. Output: a
`Comparison`. Invariant: where those answers agree, a result may be off by one step in one element of a thousand (and
one); where they differ, by twice as far and as much as they do among themselves.

A rounding error before a quantization becomes a whole step where the value lies near a tie, and the steps of one layer
move the ties of the next: no tolerance of floats fits, and stock ONNX Runtime with and without its optimizers differs
as much. The yardstick is therefore stock ONNX Runtime itself, on the same network with every scale moved by a few units
in its last place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from smelt.check.contract import Comparison, TensorPath, over_outputs, tensor_at
from smelt.ir.walk import model_nodes
from smelt.ops.block_quantized import INT8_ACTIVATIONS

Array = np.ndarray[Any, Any]

_QUANTIZING: Final = frozenset(
    ("QuantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "MatMulIntegerToFloat",
     "DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "QGemm", "QAttention", "QOrderedMatMul")
)  # fmt: skip
_RARE: Final = 1e-3  # the share of elements that may be off by a step where nothing else tells
_FACTOR: Final = 2.0
MEMBERS: Final = 2  # networks with moved scales


def quantizes(op_types: Iterable[str]) -> bool:
    return any(name in _QUANTIZING or name.startswith("QLinear") for name in op_types)


def has_8bit_activations(node: ir.Node) -> bool:
    """Whether it is a product that may quantize its activations to 8 bits."""
    level = node.attributes.get("accuracy_level")
    return node.op_type == "MatMulNBits" and level is not None and level.as_int() == INT8_ACTIVATIONS


def compare_steps(
    results: Sequence[Any], stock: Sequence[Any], others: Sequence[Sequence[Any]], tolerance: Callable[[Any], float],
    step: float,
) -> Comparison:  # fmt: skip
    """`stock` is what the rest is measured from, `others` are answers with ties rounded otherwise; `step` is the
    coarsest step of an activation."""

    def one(place: int, path: TensorPath, result: Any, reference: Any) -> Comparison:
        got, base = np.asarray(result), np.asarray(reference)
        if got.shape != base.shape or got.dtype != base.dtype:
            return Comparison(1.0, problem=f"{got.dtype}{list(got.shape)} instead of {base.dtype}{list(base.shape)}")
        if got.size == 0 or got.dtype.kind not in "fiu":
            wrong = int(np.count_nonzero(got != base))
            return Comparison(problem=f"{wrong} of {got.size} elements differ" if wrong else "")
        answers = [tensor_at(other[place], path) for other in others]
        spreads = [_distance(answer, base) for answer in answers if np.shape(answer) == base.shape]
        return _judged(_distance(got, base), spreads, base, tolerance(got), 1.0 if got.dtype.kind in "iu" else step)

    return over_outputs(results, stock, one)


def _distance(left: Array, right: Array) -> Array:
    a, b = left.astype(np.float64), right.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.abs(a - b)
    return np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.where(np.isnan(apart), np.inf, apart))


def _judged(errors: Array, spreads: Sequence[Array], base: Array, tolerance: float, step: float) -> Comparison:
    finite = base[np.isfinite(base)].astype(np.float64)
    rms = float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0
    rounding = tolerance * (np.abs(base.astype(np.float64)) + rms)
    beyond = np.where(errors <= rounding, 0.0, errors)
    farthest = max((float(s.max()) for s in spreads), default=0.0)
    usual = max((float(s.mean()) for s in spreads), default=0.0)
    worst_allowed = max(_FACTOR * farthest, step)
    mean_allowed = max(_FACTOR * usual, step * (_RARE + 1 / errors.size))
    scale = rms or 1.0
    found = Comparison(float(errors.max()) / scale, farthest / scale, worst_allowed / scale)
    if float(beyond.max()) <= worst_allowed * (1 + 1e-6) and float(beyond.mean()) <= mean_allowed * (1 + 1e-6):
        return found
    problem = (
        f"{int(np.count_nonzero(beyond))} of {errors.size} elements are off, by up to {float(errors.max()):.3g}, where "
        f"a step is {step:.3g} and stock ONNX Runtime's own answers differ by up to {farthest:.3g}"
    )
    return Comparison(found.error, found.stock_error, found.tolerance, problem)


def coarsest_step(model: ir.Model) -> float:
    """The largest constant scale of an activation; 0 where none is constant."""
    scales = [_scalar(node.inputs[1]) for node in model_nodes(model) if node.op_type == "DequantizeLinear"]
    return max((scale for scale in scales if scale is not None), default=0.0)


def _scalar(value: ir.Value | None) -> float | None:
    tensor = None if value is None else value.const_value
    return abs(float(np.asarray(tensor.numpy()).reshape(()))) if tensor is not None and tensor.size == 1 else None
