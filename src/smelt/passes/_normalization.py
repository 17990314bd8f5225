"""What the recomposition of LayerNormalization and of RMSNormalization share.

Input: nodes of a graph. Output: the parts of a match, and the node that takes its place. Invariant: a match means the
mean is over the last axis alone and scale and bias are vectors of that axis, so nothing else is broadcast.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import onnx_ir as ir

from smelt.ir.walk import model_graphs
from smelt.passes.rewriter.outcome import Outcome
from smelt.passes.rewriter.surgery import (
    ONNX,
    Names,
    array_of,
    drop_node,
    input_at,
    insert_node,
    int_attribute,
    ints_attribute,
    is_op,
    only_user,
    replace_value,
    scalar_of,
)


def recompose_all(model: ir.Model, op: str, since: int, recompose: Callable[[ir.Node, Names], bool]) -> Outcome:
    """Try every node of a model whose opset has the op."""
    changes: Counter[str] = Counter()
    if model.opset_imports.get(ONNX, 0) < since:
        return Outcome(changes)
    names = Names(model)
    for graph in model_graphs(model):
        for node in list(graph):
            if node.graph is not None and recompose(node, names):
                changes[f"{op} recomposed"] += 1
    return Outcome(changes)


def scaled_by(value: ir.Value, op: str) -> tuple[ir.Node, ir.Value] | None:
    """(node, vector), if the value's only user is such a node with a vector of the last axis."""
    user = only_user(value)
    vector = vector_operand(user, value) if user is not None and is_op(user, op) else None
    return (user, vector) if user is not None and vector is not None else None


def take_the_place(root: ir.Node, op: str, inputs: Sequence[ir.Value], epsilon: float, names: Names) -> bool:
    """Put the node that normalizes over the last axis in place of `root`; false where that is not possible."""
    attributes = (ir.AttrInt64("axis", -1), ir.AttrFloat32("epsilon", epsilon))
    made = insert_node(root, op, list(inputs), root.outputs[0], names, attributes=attributes)
    if not replace_value(root.outputs[0], made.outputs[0]):
        drop_node(made)
        return False
    drop_node(root)
    return True


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
