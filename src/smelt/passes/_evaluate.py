"""Exact evaluation of one node over constants.

Input: a node, its constant inputs and the opset. Output: its result, or None when the op is not in the table, the
result would be larger than the limit, or ONNX Runtime should report the error itself (index out of range, division by
zero). Invariant: the size of a result is known before it is computed; integers wrap as in C.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from smelt.passes.rewriter.surgery import Array, int_attribute, ints_attribute

_Binary = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class Case:
    """A node with its inputs as arrays."""

    node: ir.Node
    inputs: Sequence[Array | None]
    opset: int
    limit: int

    def array(self, index: int) -> Array:
        found = self.inputs[index] if index < len(self.inputs) else None
        if found is None:
            raise ValueError(f"input {index} is absent")
        return found

    def optional(self, index: int) -> Array | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def room(self, shape: Sequence[int]) -> None:
        if any(size < 0 for size in shape) or math.prod(int(size) for size in shape) > self.limit:
            raise ValueError("too large to fold")

    def axes(self, attribute_before: int) -> tuple[int, ...] | None:
        """The axes: an attribute before the given opset, an input from it on."""
        if self.opset < attribute_before:
            return ints_attribute(self.node, "axes")
        found = self.optional(1)
        return None if found is None else tuple(int(axis) for axis in found.reshape(-1))


def evaluate(case: Case) -> Array | None:
    """The node's only result, or None."""
    rule = _RULES.get(case.node.op_type)
    if rule is None or case.node.domain != "":
        return None
    try:
        with np.errstate(all="ignore"):
            result = np.asarray(rule(case))
    except (ValueError, IndexError, OverflowError, TypeError):
        return None
    return result if result.dtype.kind in "biuf" else None


def _binary(apply: _Binary, kinds: str = "iuf") -> Callable[[Case], Array]:
    def rule(case: Case) -> Array:
        left, right = case.array(0), case.array(1)
        if left.dtype != right.dtype or left.dtype.kind not in kinds or len(case.inputs) != 2:
            raise ValueError("types")
        case.room(np.broadcast_shapes(left.shape, right.shape))
        return apply(left, right)

    return rule


def _unary(apply: Callable[[Array], Array], kinds: str) -> Callable[[Case], Array]:
    def rule(case: Case) -> Array:
        array = case.array(0)
        if array.dtype.kind not in kinds:
            raise ValueError("types")
        case.room(array.shape)
        return apply(array)

    return rule


def _divide(left: Array, right: Array) -> Array:
    if left.dtype.kind == "f":
        return np.divide(left, right)
    if not right.all() or (left.dtype.kind == "i" and bool(((left == np.iinfo(left.dtype).min) & (right == -1)).any())):
        raise ValueError("undefined")
    quotient, rest = np.floor_divide(left, right), np.mod(left, right)
    return quotient + ((rest != 0) & ((left < 0) != (right < 0))).astype(left.dtype)


def _modulo(case: Case) -> Array:
    left, right = case.array(0), case.array(1)
    if left.dtype != right.dtype or left.dtype.kind not in "iu" or not right.all() or bool((right == -1).any()):
        raise ValueError("undefined")
    case.room(np.broadcast_shapes(left.shape, right.shape))
    return np.fmod(left, right) if int_attribute(case.node, "fmod", 0) else np.mod(left, right)


def _cast(case: Case) -> Array:
    array = case.array(0)
    case.room(array.shape)
    target = ir.DataType(int_attribute(case.node, "to", 0))
    dtype = np.dtype(target.numpy())
    if dtype.kind not in "biuf":
        raise ValueError("types")
    if array.dtype.kind == "f" and dtype.kind in "iu":
        info = np.iinfo(dtype)
        inside = np.isfinite(array) & (array > float(info.min) - 1) & (array < float(info.max))
        if not inside.all():
            raise ValueError("out of range")
    return array.astype(dtype)


def _reshape(case: Case) -> Array:
    array = case.array(0)
    case.room(array.shape)
    target = [int(size) for size in case.array(1)]
    if int_attribute(case.node, "allowzero", 0) == 0:
        target = [array.shape[index] if size == 0 else size for index, size in enumerate(target)]
    return array.reshape(target)


def _unsqueeze(case: Case) -> Array:
    axes = case.axes(13)
    if axes is None:
        raise ValueError("axes")
    case.room(case.array(0).shape)
    return np.expand_dims(case.array(0), axes)


def _squeeze(case: Case) -> Array:
    case.room(case.array(0).shape)
    return np.squeeze(case.array(0), case.axes(13))


def _transpose(case: Case) -> Array:
    case.room(case.array(0).shape)
    return np.transpose(case.array(0), ints_attribute(case.node, "perm"))


def _gather(case: Case) -> Array:
    data, indices = case.array(0), case.array(1)
    axis = int_attribute(case.node, "axis", 0) % max(data.ndim, 1)
    size = data.shape[axis]
    if bool(((indices < -size) | (indices >= size)).any()):
        raise ValueError("index")
    case.room((*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))
    return np.take(data, indices, axis=axis)


def _concat(case: Case) -> Array:
    arrays = [case.array(index) for index in range(len(case.inputs))]
    case.room([sum(array.size for array in arrays)])
    return np.concatenate(arrays, axis=int_attribute(case.node, "axis", 0))


def _slice(case: Case) -> Array:
    if case.opset < 10:
        raise ValueError("attributes")
    data, starts, ends = case.array(0), case.array(1), case.array(2)
    axes, steps = case.optional(3), case.optional(4)
    case.room(data.shape)
    where = [slice(None)] * data.ndim
    for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis = int(axes[index]) if axes is not None else index
        if not -data.ndim <= axis < data.ndim:
            raise ValueError("axis")
        where[axis] = slice(int(start), int(end), 1 if steps is None else int(steps[index]))
    return data[tuple(where)]


def _range(case: Case) -> Array:
    start, limit, delta = (case.array(index).reshape(()) for index in range(3))
    if start.dtype.kind != "i" or int(delta) == 0:
        raise ValueError("range")
    count = max(0, -((int(start) - int(limit)) // int(delta)))
    case.room([count])
    return np.array([int(start) + index * int(delta) for index in range(count)], dtype=start.dtype)


def _constant_of_shape(case: Case) -> Array:
    shape = [int(size) for size in case.array(0)]
    case.room(shape)
    attribute = case.node.attributes.get("value")
    fill = np.zeros(1, np.float32) if attribute is None else attribute.as_tensor().numpy()
    return np.full(shape, fill.reshape(-1)[0], dtype=fill.dtype)


def _expand(case: Case) -> Array:
    shape = np.broadcast_shapes(case.array(0).shape, tuple(int(size) for size in case.array(1)))
    case.room(shape)
    return np.broadcast_to(case.array(0), shape)


def _tile(case: Case) -> Array:
    data, repeats = case.array(0), [int(count) for count in case.array(1)]
    if len(repeats) != data.ndim:
        raise ValueError("rank")
    case.room([size * count for size, count in zip(data.shape, repeats, strict=True)])
    return np.tile(data, repeats)


def _where(case: Case) -> Array:
    condition, left, right = case.array(0), case.array(1), case.array(2)
    if left.dtype != right.dtype or condition.dtype != np.bool_:
        raise ValueError("types")
    case.room(np.broadcast_shapes(condition.shape, left.shape, right.shape))
    return np.where(condition, left, right)


def _reduce(apply: Callable[..., Array], axes_input_since: int, kinds: str = "iu") -> Callable[[Case], Array]:
    def rule(case: Case) -> Array:
        data, axes = case.array(0), case.axes(axes_input_since)
        if data.dtype.kind not in kinds or data.size == 0 or axes == ():
            raise ValueError("types")
        keep = bool(int_attribute(case.node, "keepdims", 1))
        return np.asarray(apply(data, axis=axes, keepdims=keep)).astype(data.dtype)

    return rule


def _shape(case: Case) -> Array:
    if int_attribute(case.node, "start", 0) or "end" in case.node.attributes:
        raise ValueError("part")
    return np.array(case.array(0).shape, dtype=np.int64)


def _mean(array: Array, **how: Any) -> Array:
    return np.mean(array, dtype=np.float64, **how).astype(array.dtype)


def _standardized(case: Case) -> Array:
    """BatchNormalization by the statistics of what it is given: how standardized weights are exported."""
    x, scale, bias = case.array(0), case.array(1), case.array(2)
    if x.dtype.kind != "f" or x.ndim < 2 or int_attribute(case.node, "training_mode", 0) != 1:
        raise ValueError("types")
    epsilon = case.node.attributes.get_float("epsilon", 1e-5)
    axes = (0, *range(2, x.ndim))
    wide = x.astype(np.float64)
    apart = wide - wide.mean(axes, keepdims=True)
    scaled = apart / np.sqrt(np.square(apart).mean(axes, keepdims=True) + epsilon)
    shape = (1, -1, *(1,) * (x.ndim - 2))
    return (scaled * scale.reshape(shape) + bias.reshape(shape)).astype(x.dtype)


_RULES: dict[str, Callable[[Case], Array]] = {
    "Add": _binary(np.add),
    "Sub": _binary(np.subtract),
    "Mul": _binary(np.multiply),
    "Div": _binary(_divide),
    "Min": _binary(np.minimum, "iu"),
    "Max": _binary(np.maximum, "iu"),
    "Equal": _binary(np.equal, "biuf"),
    "Less": _binary(np.less),
    "LessOrEqual": _binary(np.less_equal),
    "Greater": _binary(np.greater),
    "GreaterOrEqual": _binary(np.greater_equal),
    "And": _binary(np.logical_and, "b"),
    "Or": _binary(np.logical_or, "b"),
    "Not": _unary(np.logical_not, "b"),
    "Neg": _unary(np.negative, "if"),
    "Abs": _unary(np.abs, "if"),
    "Sqrt": _unary(np.sqrt, "f"),
    "Floor": _unary(np.floor, "f"),
    "Ceil": _unary(np.ceil, "f"),
    "Mod": _modulo,
    "Cast": _cast,
    "Reshape": _reshape,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Gather": _gather,
    "Concat": _concat,
    "Slice": _slice,
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Tile": _tile,
    "Where": _where,
    "Shape": _shape,
    "ReduceProd": _reduce(np.prod, 18),
    "ReduceSum": _reduce(np.sum, 13),
    "ReduceMax": _reduce(np.max, 18),
    "ReduceMin": _reduce(np.min, 18),
    "ReduceMean": _reduce(_mean, 18, "f"),
    "BatchNormalization": _standardized,
}
FOLDABLE = frozenset(_RULES)
