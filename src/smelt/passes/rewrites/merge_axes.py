"""Unsqueeze, Squeeze and Reshape in a row -> one node, or none.

Input: two such nodes, the first read by the second. Output: one Unsqueeze with the axes of both; the source itself
where Squeeze takes away what Unsqueeze gave; one Reshape where the second says every size by itself. Invariant: axes
are constants of known rank; a Reshape whose target copies a size (0) stays, unless the first has it at the same axis.
"""

from __future__ import annotations

import onnx_ir as ir

from smelt.ir.sizes import known_shape
from smelt.passes.rewriter.rules import Rewrite, Rule
from smelt.passes.rewriter.surgery import input_at, int_attribute, is_op

_AXES_ARE_INPUTS = 13


def _axes(node: ir.Node, rewrite: Rewrite, rank: int) -> list[int] | None:
    """Sorted, from 0 on; `rank` is that of the larger tensor."""
    array = rewrite.array(input_at(node, 1))
    if array is None or rewrite.opset < _AXES_ARE_INPUTS:
        return None
    return sorted(int(axis) % rank for axis in array.reshape(-1))


def _rank(value: ir.Value | None) -> int | None:
    return None if value is None or value.shape is None else value.shape.rank()


def _unsqueeze(node: ir.Node, rewrite: Rewrite) -> ir.Value | None:
    """Unsqueeze of an Unsqueeze -> one Unsqueeze"""
    source = node.inputs[0]
    inner = source.producer() if source is not None else None
    middle, last = _rank(source), _rank(node.outputs[0])
    if inner is None or not is_op(inner, "Unsqueeze") or middle is None or last is None:
        return None
    first, second = _axes(inner, rewrite, middle), _axes(node, rewrite, last)
    if first is None or second is None or len(set(second)) != len(second):
        return None
    kept = [axis for axis in range(last) if axis not in second]  # where the axes of the middle go
    both = sorted((*second, *(kept[axis] for axis in first)))
    return rewrite.op("Unsqueeze", inner.inputs[0], rewrite.constant(both), like=node.outputs[0])


def _squeeze(node: ir.Node, rewrite: Rewrite) -> ir.Value | None:
    """Squeeze of an Unsqueeze over the same axes -> nothing"""
    source = node.inputs[0]
    inner = source.producer() if source is not None else None
    rank = _rank(source)
    if inner is None or not is_op(inner, "Unsqueeze") or rank is None:
        return None
    first, second = _axes(inner, rewrite, rank), _axes(node, rewrite, rank)
    return inner.inputs[0] if first is not None and first == second else None


def _reshape(node: ir.Node, rewrite: Rewrite) -> ir.Value | None:
    """Reshape of a Reshape, Squeeze, Unsqueeze or Flatten -> one Reshape"""
    source = node.inputs[0]
    inner = source.producer() if source is not None else None
    if inner is None or not is_op(inner, "Reshape", "Squeeze", "Unsqueeze", "Flatten"):
        return None
    target = rewrite.array(node.inputs[1])
    if target is None or int_attribute(node, "allowzero", 0):
        return None
    copied = [axis for axis, size in enumerate(target.reshape(-1)) if size == 0]
    if not all(_same_size(inner.inputs[0], source, axis) for axis in copied):
        return None
    return rewrite.op("Reshape", inner.inputs[0], node.inputs[1], like=node.outputs[0])


def _same_size(one: ir.Value | None, other: ir.Value | None, axis: int) -> bool:
    if one is None or other is None:
        return False
    left, right = known_shape(one), known_shape(other)
    if left is None or right is None or axis >= min(left.rank(), right.rank()):
        return False
    size = left[axis]
    return size == right[axis] and (isinstance(size, int) or bool(size.value))


_SETS = ("default", "training")
MERGE_AXES = (
    Rule("merge-unsqueezes", _unsqueeze, frozenset(("Unsqueeze",)), _SETS),
    Rule("squeeze-unsqueezed", _squeeze, frozenset(("Squeeze",)), _SETS),
    Rule("merge-reshapes", _reshape, frozenset(("Reshape",)), _SETS),
)
