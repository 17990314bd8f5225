"""Transposes and factors around a product -> ONNX Runtime's FusedMatMul; a transposed matrix -> Gemm.

Input: a float32 MatMul whose operands are transposed in their last two axes, or whose result is scaled by a constant.
Output: `com.microsoft::FusedMatMul` with transA, transB and alpha, or, in training graphs, a standard Gemm of matrices.
Invariant: an operand's transpose is taken in whatever else reads it; a scaled product has no other reader.
"""

from __future__ import annotations

import onnx_ir as ir

from smelt.passes.rewriter.rules import Rewrite, Rule
from smelt.passes.rewriter.surgery import ints_attribute, is_op, only_user

_CONTRIB = "com.microsoft"


def _plain(value: ir.Value | None) -> tuple[ir.Value | None, bool]:
    """What is transposed in its last two axes, and whether it is."""
    node = value.producer() if value is not None else None
    if node is None or not is_op(node, "Transpose"):
        return value, False
    perm = ints_attribute(node, "perm") or _reversal(node.inputs[0])
    if perm is None or len(perm) < 2:
        return value, False
    transposed = perm == (*range(len(perm) - 2), len(perm) - 1, len(perm) - 2)
    return (node.inputs[0], True) if transposed else (value, False)


def _reversal(value: ir.Value | None) -> tuple[int, ...] | None:
    """What a Transpose does that says no permutation."""
    return None if value is None or value.shape is None else tuple(reversed(range(value.shape.rank())))


def _is_float(*values: ir.Value | None) -> bool:
    return all(value is not None and value.dtype == ir.DataType.FLOAT for value in values)


def _fuse(node: ir.Node, rewrite: Rewrite) -> ir.Value | None:
    """MatMul with transposed operands -> FusedMatMul"""
    (left, first), (right, second) = _plain(node.inputs[0]), _plain(node.inputs[1])
    if not (first or second) or not _is_float(left, right):
        return None
    return rewrite.op(
        "FusedMatMul", left, right, domain=_CONTRIB, like=node.outputs[0], transA=int(first), transB=int(second)
    )


def _scale(node: ir.Node, rewrite: Rewrite) -> ir.Value | None:
    """A product times a constant -> alpha of FusedMatMul"""
    for value, factor in ((node.inputs[0], node.inputs[1]), (node.inputs[1], node.inputs[0])):
        number = rewrite.number(factor)
        product = value.producer() if value is not None else None
        if number is None or product is None or value is None or only_user(value) is not node:
            continue
        fused = product.domain == _CONTRIB and product.op_type == "FusedMatMul" and "alpha" not in product.attributes
        if _is_float(*product.inputs) and (fused or is_op(product, "MatMul")) and _same_rank(value, node.outputs[0]):
            kept = {name: product.attributes[name].as_int() for name in ("transA", "transB") if fused}
            return rewrite.op(
                "FusedMatMul", *product.inputs, domain=_CONTRIB, like=node.outputs[0], alpha=float(number), **kept
            )
    return None


def _same_rank(value: ir.Value, other: ir.Value) -> bool:
    return value.shape is not None and other.shape is not None and value.shape.rank() == other.shape.rank()


def _gemm(node: ir.Node, rewrite: Rewrite) -> ir.Value | None:
    """MatMul of matrices, one of them transposed -> Gemm"""
    (left, first), (right, second) = _plain(node.inputs[0]), _plain(node.inputs[1])
    matrices = all(v is not None and v.shape is not None and v.shape.rank() == 2 for v in (left, right))
    if not (first or second) or not matrices or not _is_float(left, right):
        return None
    return rewrite.op("Gemm", left, right, like=node.outputs[0], transA=int(first), transB=int(second))


ORT_PRODUCTS = (
    Rule("ort-fused-matmul", _fuse, frozenset(("MatMul",)), ("ort",)),
    Rule("ort-scaled-matmul", _scale, frozenset(("Mul",)), ("ort",)),
    Rule("transposed-to-gemm", _gemm, frozenset(("MatMul",)), ("training",)),
)
