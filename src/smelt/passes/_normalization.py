"""Patterns that LayerNormalization and RMSNormalization share.

Input: nodes of a graph. Output: the parts of a match. Invariant: a match means the mean is over the last axis alone and
scale and bias are vectors of that axis, so nothing else is broadcast.
"""

from __future__ import annotations

import onnx_ir as ir

from smelt.passes.surgery import array_of, input_at, int_attribute, ints_attribute, is_op, scalar_of


def mean_source(value: ir.Value | None) -> ir.Value | None:
    """x, if the value is ReduceMean(x) over the last axis with keepdims."""
    node = value.producer() if value is not None else None
    if node is None or not is_op(node, "ReduceMean") or int_attribute(node, "keepdims", 1) != 1:
        return None
    source = node.inputs[0]
    axes = ints_attribute(node, "axes")
    if axes is None:
        found = array_of(input_at(node, 1), 1)
        axes = tuple(int(axis) for axis in found.reshape(-1)) if found is not None else ()
    if source is None or len(axes) != 1:
        return None
    rank = source.shape.rank() if source.shape is not None else None
    return source if axes[0] == -1 or (rank is not None and axes[0] == rank - 1) else None


def square_source(value: ir.Value | None) -> ir.Value | None:
    """x, if the value is x * x or x ** 2."""
    node = value.producer() if value is not None else None
    if node is None:
        return None
    if is_op(node, "Pow") and scalar_of(node.inputs[1]) == 2.0:
        return node.inputs[0]
    return node.inputs[0] if is_op(node, "Mul") and node.inputs[0] is node.inputs[1] else None


def root_source(value: ir.Value | None) -> tuple[ir.Value, float] | None:
    """(v, epsilon), if the value is sqrt(v + epsilon)."""
    node = value.producer() if value is not None else None
    inner = node.inputs[0] if node is not None and is_op(node, "Sqrt") else None
    add = inner.producer() if inner is not None else None
    if add is None or not is_op(add, "Add"):
        return None
    for variance, epsilon in (add.inputs, reversed(add.inputs)):
        number = scalar_of(epsilon)
        if variance is not None and number is not None and number >= 0:
            return variance, number
    return None


def normalized_source(node: ir.Node) -> tuple[ir.Value, ir.Value, float] | None:
    """(x, v, epsilon), if the node is x / sqrt(v + epsilon) or x * (1 / sqrt(v + epsilon))."""
    if len(node.inputs) != 2:
        return None
    if is_op(node, "Div"):
        found = root_source(node.inputs[1])
        return (node.inputs[0], *found) if found is not None and node.inputs[0] is not None else None
    if not is_op(node, "Mul"):
        return None
    for source, inverse in (node.inputs, reversed(node.inputs)):
        maker = inverse.producer() if inverse is not None else None
        if source is None or maker is None:
            continue
        reciprocal = is_op(maker, "Reciprocal") or (is_op(maker, "Div") and scalar_of(maker.inputs[0]) == 1.0)
        found = root_source(maker.inputs[-1]) if reciprocal else None
        if found is not None:
            return (source, *found)
    return None


def vector_operand(node: ir.Node, value: ir.Value) -> ir.Value | None:
    """The other operand, if it is a vector as long as the last axis of the value."""
    rest = [found for found in node.inputs if found is not value]
    if len(rest) != 1 or rest[0] is None or rest[0].shape is None or value.shape is None or not value.shape.rank():
        return None
    size = value.shape[-1]
    fits = rest[0].shape.rank() == 1 and isinstance(size, int) and rest[0].shape[0] == size
    return rest[0] if fits and rest[0].dtype == value.dtype else None
