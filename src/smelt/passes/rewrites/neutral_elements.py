"""Arithmetic with 0, 1 and True -> its other operand.

Input: Add, Sub, Mul, Div, And, Or and Where with a constant. Output: the operand that the result equals. Invariant: the
result has the operand's shape for certain, and the same bits: x + 0 is taken for integers only, because -0.0 + 0.0 is
0.0, while x - 0, x * 1 and x / 1 are exact for all numbers.
"""

from __future__ import annotations

import onnx_ir as ir

from smelt.ir.sizes import known_shape
from smelt.passes.rewriter.rules import Rewrite, Rule
from smelt.passes.rewriter.surgery import array_of

_COMMUTATIVE = frozenset(("Add", "Mul", "And", "Or"))
_NEUTRAL = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1, "And": 1, "Or": 0}
_LARGEST = 4096


def _apply(node: ir.Node, rewrite: Rewrite) -> ir.Value | None:
    """x * 1, x / 1, x - 0, x + 0 of integers, x and True, x or False"""
    del rewrite
    left, right = node.inputs[:2]
    for value, other in ((left, right), (right, left)):
        if _is_neutral(other, node.op_type, value) and _keeps_shape(value, other):
            return value
        if node.op_type not in _COMMUTATIVE:
            break
    return None


def _is_neutral(value: ir.Value | None, op_type: str, other: ir.Value | None) -> bool:
    array = array_of(value, _LARGEST)
    if array is None or other is None or not array.size:
        return False
    if op_type == "Add" and array.dtype.kind == "f":
        return False
    return bool((array == _NEUTRAL[op_type]).all())


def _keeps_shape(value: ir.Value | None, neutral: ir.Value | None) -> bool:
    """Whether broadcasting with the constant leaves the shape alone."""
    if value is None or neutral is None or neutral.shape is None:
        return False
    if neutral.shape.rank() == 0:
        return True
    shape = known_shape(value)
    if shape is None or shape.rank() < neutral.shape.rank():
        return False
    own = shape[shape.rank() - neutral.shape.rank() :]
    return all(size == 1 or size == mine for size, mine in zip(neutral.shape, own, strict=True))


NEUTRAL_ELEMENTS = Rule("neutral-elements", _apply, frozenset(_NEUTRAL), ("default", "training"))
