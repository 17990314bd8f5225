"""The arithmetic of GELU -> one Gelu node.

Input: a float32 model. Output: the model with 0.5 * x * (1 + erf(x / sqrt(2))), and the tanh form
0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))), as Gelu (opset 20 on) or ONNX Runtime's Gelu and FastGelu.
Invariant: only chains whose inner values have no other user are replaced.
"""

from __future__ import annotations

import math
from collections import Counter

import onnx_ir as ir

from smelt.ir.walk import model_graphs
from smelt.passes.rewriter.outcome import Outcome
from smelt.passes.rewriter.surgery import (
    ONNX,
    Names,
    drop_node,
    insert_node,
    is_op,
    only_user,
    replace_value,
    scalar_of,
)

CONTRIB = "com.microsoft"
_TOLERANCE = 1e-5


class RecomposeGelu:
    """Find GELU by its Erf or Tanh and replace the whole chain."""

    def __call__(self, model: ir.Model) -> Outcome:
        changes: Counter[str] = Counter()
        names = Names(model)
        opset = model.opset_imports.get(ONNX, 0)
        for graph in model_graphs(model):
            for node in list(graph):
                if node.graph is None or not is_op(node, "Erf", "Tanh"):
                    continue
                source = _erf_source(node) if node.op_type == "Erf" else _tanh_source(node)
                root = _root(node, source) if source is not None and _is_float_tensor(source) else None
                if source is None or root is None:
                    continue
                if _replace(model, root, source, node.op_type == "Tanh", opset, names):
                    changes["Gelu recomposed"] += 1
        return Outcome(changes)


def _is_float_tensor(value: ir.Value) -> bool:
    """Of rank 1 at least: a constant of rank 1 would raise the rank of a scalar."""
    return value.dtype == ir.DataType.FLOAT and value.shape is not None and value.shape.rank() >= 1


def _near(value: ir.Value | None, number: float) -> bool:
    found = scalar_of(value)
    return found is not None and math.isclose(found, number, rel_tol=_TOLERANCE)


def _scaled(value: ir.Value | None, factor: float) -> ir.Value | None:
    """x, if the value is x * factor (or x / (1 / factor)) and has one user."""
    node = value.producer() if value is not None and only_user(value) is not None else None
    if node is None or len(node.inputs) != 2:
        return None
    left, right = node.inputs
    if is_op(node, "Mul"):
        if _near(right, factor):
            return left
        return right if _near(left, factor) else None
    return left if is_op(node, "Div") and _near(right, 1 / factor) else None


def _erf_source(erf: ir.Node) -> ir.Value | None:
    return _scaled(erf.inputs[0], math.sqrt(0.5))


def _tanh_source(tanh: ir.Node) -> ir.Value | None:
    inner = _scaled(tanh.inputs[0], math.sqrt(2 / math.pi))
    add = inner.producer() if inner is not None and only_user(inner) is not None else None
    if add is None or not is_op(add, "Add"):
        return None
    for source, cubic in (add.inputs, reversed(add.inputs)):
        cube = _scaled(cubic, 0.044715)
        if source is not None and cube is not None and _is_cube(cube, source):
            return source
    return None


def _is_cube(value: ir.Value, source: ir.Value) -> bool:
    node = value.producer()
    if node is None or only_user(value) is None:
        return False
    if is_op(node, "Pow"):
        return node.inputs[0] is source and _near(node.inputs[1], 3.0)
    if not is_op(node, "Mul"):
        return False
    square = next((v for v in node.inputs if v is not source), None)
    maker = square.producer() if square is not None and source in node.inputs else None
    return maker is not None and is_op(maker, "Mul") and all(v is source for v in maker.inputs)


def _root(bell: ir.Node, source: ir.Value) -> ir.Node | None:
    """The Mul that completes 0.5 * x * (1 + bell), in any order of its factors."""
    add = only_user(bell.outputs[0])
    if add is None or not is_op(add, "Add") or not any(_near(value, 1.0) for value in add.inputs):
        return None
    first = only_user(add.outputs[0])
    if first is None or not is_op(first, "Mul"):
        return None
    other = _other(first, add.outputs[0])
    if other is None:
        return None
    if _scaled(other, 0.5) is source:
        return first
    second = only_user(first.outputs[0])
    if second is None or not is_op(second, "Mul", "Div"):
        return None
    if _near(other, 0.5):
        return second if is_op(second, "Mul") and _other(second, first.outputs[0]) is source else None
    return second if other is source and _halves(second, first.outputs[0]) else None


def _halves(node: ir.Node, value: ir.Value) -> bool:
    if is_op(node, "Div"):
        return node.inputs[0] is value and _near(node.inputs[1], 2.0)
    return _near(_other(node, value), 0.5)


def _other(node: ir.Node, value: ir.Value) -> ir.Value | None:
    rest = [found for found in node.inputs if found is not value]
    return rest[0] if len(rest) == 1 else None


def _replace(model: ir.Model, root: ir.Node, source: ir.Value, tanh: bool, opset: int, names: Names) -> bool:
    if opset >= 20:
        attributes = (ir.AttrString("approximate", "tanh"),) if tanh else ()
        node = insert_node(root, "Gelu", [source], root.outputs[0], names, attributes=attributes)
    else:
        node = insert_node(root, "FastGelu" if tanh else "Gelu", [source], root.outputs[0], names, CONTRIB)
        model.opset_imports.setdefault(CONTRIB, 1)
    if not replace_value(root.outputs[0], node.outputs[0]):
        drop_node(node)
        return False
    drop_node(root)
    return True
