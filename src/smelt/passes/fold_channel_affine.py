"""What scales and shifts a convolution's channels -> its weights and bias.

Input: a float32 model whose shapes are inferred. Output: BatchNormalization, and Mul, Div, Add, Sub with a constant
for each channel, behind a convolution of constant weights are in these; a convolution without a bias has one of -0.0,
so that all convolutions end alike. Invariant: the convolution's result has no other user; the new weights are computed
in float64 and rounded once, and are finite wherever the old ones were; a weight that others use too stays for them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from smelt.ir.walk import model_graphs
from smelt.passes.rewriter.outcome import Outcome
from smelt.passes.rewriter.surgery import (
    Array,
    Names,
    add_constant,
    array_of,
    drop_node,
    input_at,
    int_attribute,
    is_op,
    only_user,
    replace_value,
)  # fmt: skip

MOST = 1 << 26  # elements of a weight that is computed again
_CONVOLUTIONS = ("Conv", "ConvTranspose")


@dataclass(frozen=True)
class Affine:
    """y = x * scale + shift, an element of each for every channel, in float64."""

    scale: Array
    shift: Array


class FoldChannelAffine:
    """Fold batch normalization and factors and shifts of channels into the convolution before them."""

    sets = ("default",)

    def __call__(self, model: ir.Model) -> Outcome:
        changes: Counter[str] = Counter()
        names = Names(model)
        for graph in model_graphs(model):
            for node in list(graph):
                if not is_op(node, *_CONVOLUTIONS) or node.outputs[0].dtype != ir.DataType.FLOAT:
                    continue
                for op_type in _fold_consumers(node, graph, names):
                    changes[f"{op_type} folded into a convolution"] += 1
                if input_at(node, 2) is None and _give_bias(node, graph, names):
                    changes["bias of -0.0 for a convolution without"] += 1
        return Outcome(changes)


def _fold_consumers(node: ir.Node, graph: ir.Graph, names: Names) -> list[str]:
    """The ops that were folded, one after the other."""
    done: list[str] = []
    while (user := only_user(node.outputs[0])) is not None and user.graph is graph:
        affine = _affine_of(user, node.outputs[0], _columns(node))
        if affine is None or not _fold(node, affine, graph, names):
            break
        op_type, result = user.op_type, user.outputs[0]
        node.outputs[0].shape = node.outputs[0].shape or result.shape
        if not replace_value(result, node.outputs[0]):
            break
        drop_node(user)
        done.append(op_type)
    return done


def _columns(node: ir.Node) -> int:
    """Channels of the result; 0: not known."""
    weight = input_at(node, 1)
    sizes = [d for d in weight.shape if isinstance(d, int)] if weight is not None and weight.shape is not None else []
    if len(sizes) < 3:
        return 0
    return sizes[0] if node.op_type == "Conv" else sizes[1] * int_attribute(node, "group", 1)


def _affine_of(user: ir.Node, value: ir.Value, columns: int) -> Affine | None:
    if is_op(user, "BatchNormalization"):
        return normalization_of(user, value, columns)
    if not is_op(user, "Mul", "Div", "Add", "Sub") or len(user.inputs) != 2 or user.inputs[0] is user.inputs[1]:
        return None
    place = 0 if user.inputs[0] is value else 1
    factor = _by_channel(user.inputs[1 - place], value, columns)
    if factor is None or (place == 1 and user.op_type == "Div"):
        return None
    one, nothing = np.ones(columns), np.full(columns, -0.0)
    if user.op_type in ("Mul", "Div"):
        with np.errstate(all="ignore"):
            return Affine(factor if user.op_type == "Mul" else one / factor, nothing)
    if user.op_type == "Add":
        return Affine(one, factor)
    return Affine(one, -factor) if place == 0 else Affine(-one, factor)


def normalization_of(user: ir.Node, value: ir.Value, columns: int) -> Affine | None:
    """Inference only, statistics for each channel."""
    if user.inputs[0] is not value or int_attribute(user, "training_mode", 0) or not int_attribute(user, "spatial", 1):
        return None
    if sum(bool(output.name) for output in user.outputs) > 1:
        return None
    arrays = [array_of(input_at(user, place), columns) for place in range(1, 5)]
    if any(a is None or a.shape != (columns,) for a in arrays):
        return None
    scale, shift, mean, variance = (np.asarray(a, np.float64) for a in arrays)
    epsilon = user.attributes.get("epsilon")
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + (1e-5 if epsilon is None else epsilon.as_float()))
        return Affine(factor, shift - mean * factor)


def _by_channel(other: ir.Value | None, value: ir.Value, columns: int) -> Array | None:
    """A constant that has one element, or one for each channel of an image of the result's rank."""
    array = array_of(other, columns)
    if array is None or array.dtype != np.float32 or value.shape is None or array.ndim > len(value.shape):
        return None
    if array.size == 1:
        return np.full(columns, float(array.reshape(-1)[0]))
    rank = len(value.shape)
    aligned = (1,) * (rank - array.ndim) + array.shape
    if aligned != (1, columns) + (1,) * (rank - 2):
        return None
    return array.reshape(-1).astype(np.float64)


def _fold(node: ir.Node, affine: Affine, graph: ir.Graph, names: Names) -> bool:
    """Whether the convolution has taken it."""
    weight, bias = array_of(input_at(node, 1), MOST), input_at(node, 2)
    old = np.full(affine.shift.shape, -0.0, np.float32) if bias is None else array_of(bias, affine.shift.size)
    if weight is None or old is None or weight.dtype != np.float32 or old.shape != affine.shift.shape:
        return False
    scale = _along_columns(node, weight, affine.scale)
    with np.errstate(all="ignore"):
        scaled = (weight * scale).astype(np.float32)
        shifted = (old * affine.scale + affine.shift).astype(np.float32)
    if not (_keeps_weights(weight, scale, scaled) and np.isfinite(shifted).all()):
        return False
    if not np.array_equal(affine.scale, np.ones_like(affine.scale)):
        node.replace_input_with(1, add_constant(graph, scaled, names))
    set_bias(node, add_constant(graph, shifted, names))
    return True


def _keeps_weights(before: Array, scale: Array, after: Array) -> bool:
    """Whether all are finite, and none that counted is lost below the normal numbers, but by a scale of 0."""
    smallest = float(np.finfo(np.float32).tiny)
    lost = (np.abs(after) < smallest) & (np.abs(before) >= smallest) & (scale != 0)
    return bool(np.isfinite(after).all() and not lost.any())


def _along_columns(node: ir.Node, weight: Array, scale: Array) -> Array:
    """The scale of each column, shaped as the weights do: (columns, ...), or (channels, columns of a group, ...)."""
    rest = (1,) * (weight.ndim - 2)
    if node.op_type == "Conv":
        return scale.reshape(-1, 1, *rest)
    groups = int_attribute(node, "group", 1)
    each = scale.reshape(groups, 1, weight.shape[1], *rest)
    return np.broadcast_to(each, (groups, weight.shape[0] // groups, weight.shape[1], *rest)).reshape(
        weight.shape[0], weight.shape[1], *rest
    )


def set_bias(node: ir.Node, bias: ir.Value) -> None:
    if len(node.inputs) < 3:
        node.resize_inputs(3)
    node.replace_input_with(2, bias)


def _give_bias(node: ir.Node, graph: ir.Graph, names: Names) -> bool:
    """x + -0.0 is x, whatever x is."""
    columns = _columns(node)
    if not columns or array_of(input_at(node, 1), MOST) is None:
        return False
    set_bias(node, add_constant(graph, np.full(columns, -0.0, np.float32), names))
    return True
