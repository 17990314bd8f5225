"""Einsum with a constant weight -> MatMul.

Input: `bsh,hnd->bsnd`, as dense layers with several heads are exported. Output: MatMul by the weight as a matrix, with
Reshapes around it. Invariant: the weight is constant, its summed labels are the other operand's last ones in order, and
no label is in both operands and in the result: then the weight is packed ahead of time like any other.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from smelt.passes.rewriter.rules import Rewrite, Rule
from smelt.passes.rewriter.surgery import tensor_of


def _apply(node: ir.Node, rewrite: Rewrite) -> ir.Value | None:
    """Einsum with a constant weight of several axes -> Reshape, MatMul, Reshape"""
    equation = node.attributes.get("equation")
    if len(node.inputs) != 2 or equation is None or equation.is_ref() or None in node.inputs:
        return None
    x, weight = node.inputs
    tensor, labels = tensor_of(weight), _labels(equation.as_string(), x)
    if x is None or weight is None or tensor is None or labels is None:
        return None
    left, inner, right, given = labels
    sizes = dict(zip(given, tensor.shape.numpy(), strict=True)) if len(given) == len(tensor.shape) else None
    if sizes is None:
        return None
    depth, columns = (math.prod(sizes[label] for label in group) for group in (inner, right))
    matrix = _matrix(rewrite, weight, given, (inner, right), (depth, columns))
    keep = [0] * left
    rows = x if len(inner) == 1 else rewrite.op("Reshape", x, rewrite.constant([*keep, depth]))
    made = rewrite.op("MatMul", rows, matrix)
    if len(right) == 1:
        return made
    return rewrite.op("Reshape", made, rewrite.constant([*keep, *(sizes[c] for c in right)]), like=node.outputs[0])


def _labels(equation: str, x: ir.Value | None) -> tuple[int, str, str, str] | None:
    """(leading axes of x, summed labels, labels of the weight alone, the weight's own order); None for other forms."""
    terms, arrow, result = equation.replace(" ", "").partition("->")
    first, _, given = terms.partition(",")
    if not arrow or "," in given or "..." in given or len(set(given)) != len(given) or x is None:
        return None
    inner = "".join(c for c in first if c in given and c not in result)
    right = "".join(c for c in result if c in given)
    left = first.removesuffix(inner)
    if not inner or not left or left + right != result or len(inner + right) != len(given) or set(left) & set(given):
        return None
    dots = 0
    if "..." in first:
        if x.shape is None:
            return None
        dots = x.shape.rank() - len(first.replace("...", ""))
    count = len(left.replace("...", "")) + dots
    return (count, inner, right, given) if count and len(set(left.replace("...", ""))) + dots == count else None


def _matrix(
    rewrite: Rewrite, weight: ir.Value, given: str, groups: tuple[str, str], sizes: tuple[int, int]
) -> ir.Value:
    """The weight as (summed labels, own labels); nodes over a constant, which are folded."""
    order = "".join(groups)
    if order != given:
        weight = rewrite.op("Transpose", weight, perm=[given.index(label) for label in order])
    if [len(group) for group in groups] == [1, 1]:
        return weight
    return rewrite.op("Reshape", weight, rewrite.constant(sizes))


EINSUM_TO_MATMUL = Rule("einsum-to-matmul", _apply, frozenset(("Einsum",)), ("default",))
