"""Computation on weights alone -> weights.

Input: a model whose shapes are inferred. Output: the model with products, normalizations and element-wise nodes over
constants replaced by their results (relative position tables that every layer projects again, for example). Invariant:
sizes and work are known and bounded before anything is computed; results are computed in float64 and rounded once.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import onnx_ir as ir

from smelt.ir.narrowed import is_narrowed
from smelt.ops.reference import NoReferenceError, evaluate
from smelt.passes.fold_constants import SMALL, replace_by_constant
from smelt.passes.rewriter.outcome import Outcome
from smelt.passes.rewriter.surgery import ONNX, Array, Names, array_of

RESULT = 1 << 22
TOTAL = 1 << 26
WORK = 1 << 35
_OPS = frozenset((
    "MatMul", "Gemm", "Add", "Sub", "Mul", "Div", "Neg", "Abs", "Sqrt", "Pow", "Exp", "Tanh", "Sigmoid", "Erf", "Relu",
    "Gelu", "Softmax", "LayerNormalization", "Transpose", "Reshape", "Unsqueeze", "Squeeze", "Slice", "Gather",
    "Concat", "Expand", "Tile", "Cast", "Flatten", "Identity", "Where",
))  # fmt: skip


class FoldWeights:
    """Evaluate nodes of the main graph that read nothing but constants."""

    def __call__(self, model: ir.Model) -> Outcome:
        changes: Counter[str] = Counter()
        names = Names(model)
        opset = model.opset_imports.get(ONNX, 0)
        room, work = TOTAL, WORK
        for node in model.graph:
            if not _foldable(node):
                continue
            effort = _effort(node)
            inputs = [array_of(value, TOTAL) for value in node.inputs]
            missing = any(v is not None and a is None for v, a in zip(node.inputs, inputs, strict=True))
            if missing or effort > work or math.prod(_static(node.outputs[0]) or ()) > room:
                continue
            result = _result(node, inputs, opset)
            if result is not None:
                room, work = room - result.size, work - effort
                replace_by_constant(node, model.graph, result, names)
                changes[f"{node.op_type} of weights folded"] += 1
        return Outcome(changes)


def _foldable(node: ir.Node) -> bool:
    if node.domain != ONNX or node.op_type not in _OPS or len(node.outputs) != 1 or not node.inputs:
        return False
    if is_narrowed(node) or _shared_view(node):
        return False
    output = node.outputs[0]
    shape = _static(output)
    if shape is None or output.is_graph_output() or math.prod(shape) > RESULT or output.dtype is None:
        return False
    return all(v is None or (v.const_value is not None and not v.is_graph_input()) for v in node.inputs)


def _shared_view(node: ir.Node) -> bool:
    """A reshaped weight that others read too is the same memory; folded, it would be held twice."""
    source = node.inputs[0]
    shared = source is not None and len(source.uses()) > 1
    return node.op_type == "Reshape" and shared and math.prod(_static(source) or ()) > SMALL


def _static(value: ir.Value | None) -> tuple[int, ...] | None:
    if value is None or value.shape is None:
        return None
    sizes = [d for d in value.shape if isinstance(d, int)]
    return tuple(sizes) if len(sizes) == len(value.shape) else None


def _effort(node: ir.Node) -> int:
    """Operations, roughly: a product's depth times its result, else the result."""
    size = math.prod(_static(node.outputs[0]) or ())
    depth = _static(node.inputs[0]) if node.op_type in ("MatMul", "Gemm") else None
    return size * max(depth or (1,))


def _result(node: ir.Node, inputs: list[Array | None], opset: int) -> Array | None:
    wide = [a.astype(np.float64) if a is not None and a.dtype == np.float32 else a for a in inputs]
    try:
        (found,) = evaluate(node, wide, opset)
    except (NoReferenceError, ValueError):
        return None
    output = node.outputs[0]
    result = np.asarray(found)
    if output.dtype is None or result.shape != _static(output):
        return None
    return result.astype(output.dtype.numpy())
