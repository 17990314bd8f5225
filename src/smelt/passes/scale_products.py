"""Factors of a product's operands -> one factor of the product.

Input: a float32 model. Output: MatMul(Mul(a, 2), Mul(b, 3)) is Mul(MatMul(a, b), 6), which runs in the product's
epilogue: exporters scale queries and keys apart, and a scaled operand would be a pass over memory of its own.
Invariant: only constants of one element that are neither huge nor tiny, of operands that nothing else uses.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import onnx_ir as ir

from smelt.ir.walk import model_graphs
from smelt.passes.rewriter.outcome import Outcome
from smelt.passes.rewriter.surgery import Names, add_constant, drop_node, is_op, only_user, scalar_of

LARGEST = 1e6


class ScaleProducts:
    """Move scalar factors from in front of a product to behind it."""

    def __call__(self, model: ir.Model) -> Outcome:
        changes: Counter[str] = Counter()
        names = Names(model)
        for graph in model_graphs(model):
            for node in list(graph):
                if is_op(node, "MatMul") and node.outputs[0].dtype == ir.DataType.FLOAT and _move(node, names):
                    changes["factor moved behind a product"] += 1
        return Outcome(changes)


def _move(node: ir.Node, names: Names) -> bool:
    found = [_factor(node, place) for place in (0, 1)]
    factor = math.prod(f[1] for f in found if f is not None)
    result, graph = node.outputs[0], node.graph
    if not any(found) or not isinstance(graph, ir.Graph) or result.is_graph_output() or _extreme(factor):
        return False
    users = list(result.uses())
    for place, scaled in enumerate(found):
        maker = node.inputs[place]
        if scaled is not None and maker is not None:
            node.replace_input_with(place, scaled[0])
            _drop_maker(maker)
    value = ir.Value(name=names.fresh("v"), type=result.type, shape=result.shape)
    scale = add_constant(graph, np.asarray(factor, np.float32), names)
    scaled = ir.Node("", "Mul", [result, scale], outputs=[value], name=names.fresh("Mul"))
    scaled.metadata_props.update(node.metadata_props)
    graph.insert_after(node, scaled)
    for user, place in users:
        user.replace_input_with(place, value)
    return True


def _drop_maker(value: ir.Value) -> None:
    maker = value.producer()
    assert maker is not None
    drop_node(maker)


def _extreme(factor: float) -> bool:
    return not 1 / LARGEST < abs(factor) < LARGEST


def _factor(node: ir.Node, place: int) -> tuple[ir.Value, float] | None:
    """(what is scaled, by how much) for one operand."""
    value = node.inputs[place]
    maker = value.producer() if value is not None else None
    if value is None or maker is None or not is_op(maker, "Mul", "Div") or only_user(value) is not node:
        return None
    left, right = maker.inputs
    if left is None or right is None or node.inputs[0] is node.inputs[1]:
        return None
    scale, source = scalar_of(right), left
    if scale is None and maker.op_type == "Mul":
        scale, source = scalar_of(left), right
    if scale is None or _extreme(scale) or not _same_rank(source, value):
        return None
    return source, scale if maker.op_type == "Mul" else 1 / scale


def _same_rank(source: ir.Value, value: ir.Value) -> bool:
    return source.shape is not None and value.shape is not None and len(source.shape) == len(value.shape)
