"""Nodes that hand on their input unchanged.

Input: a model, best with shapes. Output: the model without Identity, Cast to the same type, Dropout in inference,
Transpose and Reshape to the same layout, and variadic ops of one input. Invariant: a graph output keeps its name, so
a node that only renames an input or an initializer to an output stays.
"""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from smelt.ir.sizes import known_shape
from smelt.ir.walk import model_graphs
from smelt.passes.rewriter.outcome import Outcome
from smelt.passes.rewriter.surgery import (
    ONNX,
    array_of,
    drop_node,
    input_at,
    int_attribute,
    ints_attribute,
    replace_value,
)

_VARIADIC = frozenset(("Concat", "Sum", "Max", "Min", "Mean"))


class EliminateIdentity:
    """Let users of a no-op read its input."""

    def __call__(self, model: ir.Model) -> Outcome:
        changes: Counter[str] = Counter()
        opset = model.opset_imports.get(ONNX, 0)
        for graph in model_graphs(model):
            for node in graph:
                source = _source(node, opset)
                if source is not None and replace_value(node.outputs[0], source):
                    drop_node(node)
                    changes[f"{node.op_type} removed"] += 1
        return Outcome(changes)


def _source(node: ir.Node, opset: int) -> ir.Value | None:
    """The input that the node hands on, or None."""
    value = input_at(node, 0)
    if node.domain != ONNX or value is None or not node.outputs:
        return None
    if any(output.uses() or output.is_graph_output() for output in node.outputs[1:]):
        return None
    same = (
        node.op_type == "Identity"
        or (node.op_type == "Cast" and _same_type(node, value))
        or (node.op_type == "Dropout" and _is_inference(node, opset))
        or (node.op_type == "Transpose" and _keeps_axes(node, value))
        or (node.op_type == "Reshape" and _keeps_shape(node, value))
        or (node.op_type in _VARIADIC and len(node.inputs) == 1)
    )
    return value if same else None


def _same_type(node: ir.Node, value: ir.Value) -> bool:
    return value.dtype is not None and int_attribute(node, "to", 0) == value.dtype.value


def _is_inference(node: ir.Node, opset: int) -> bool:
    if opset < 7:
        return False
    mode = input_at(node, 2)
    if opset < 12 or mode is None:
        return True
    training = array_of(mode, 1)
    return training is not None and not bool(training.any())


def _keeps_axes(node: ir.Node, value: ir.Value) -> bool:
    perm = ints_attribute(node, "perm")
    if perm is None:
        return value.shape is not None and value.shape.rank() <= 1
    return perm == tuple(range(len(perm)))


def _keeps_shape(node: ir.Node, value: ir.Value) -> bool:
    target = array_of(input_at(node, 1), 64)
    shape = known_shape(value)
    if target is None or shape is None or len(target) != shape.rank():
        return False
    copies = int_attribute(node, "allowzero", 0) == 0
    wild = [index for index, size in enumerate(target) if size == -1]
    exact = all(size == dim or (size == 0 and copies) for size, dim in zip(target, shape, strict=True) if size != -1)
    # With every other dimension equal, -1 can only stand for the remaining one, unless a size of 0 hides it.
    return exact and (not wild or (len(wild) == 1 and all(_positive(d) for i, d in enumerate(shape) if i != wild[0])))


def _positive(dim: int | ir.SymbolicDim) -> bool:
    return isinstance(dim, int) and dim > 0
