"""Matrix products.

Input: calls. Output: values. Invariant: a linear layer is Gemm for matrices and MatMul + Add otherwise, with a constant
weight transposed once, as kernels like it.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from smelt.export.call import Call
from smelt.export.dtypes import INT64, is_float
from smelt.export.expressions import cast, op
from smelt.export.records import Refused
from smelt.export.registry import converter, declare

Value = ir.Value

declare({
    "aten::mm": op.MatMul(cast("self"), cast("mat2")),
    "aten::bmm": op.MatMul(cast("self"), cast("mat2")),
    "aten::matmul": op.MatMul(cast("self"), cast("other")),
    "aten::mv": op.MatMul(cast("self"), cast("vec")),
    "aten::dot": op.MatMul(cast("self"), cast("tensor")),
    "aten::vdot": op.MatMul(cast("self"), cast("other")),
})  # fmt: skip


@converter("aten::linear")
def linear(call: Call, input: Value, weight: Value, bias: Value | None = None) -> Value:
    if call.rank(weight) == 1:
        product = call.op("MatMul", input, weight)
        return product if bias is None else call.op("Add", product, bias)
    if call.rank(input) == 2 and is_float(call.dtype):
        return call.op("Gemm", input, weight, bias, transB=1)
    product = call.op("MatMul", input, transposed(call, weight))
    return product if bias is None else call.op("Add", product, bias)


def transposed(call: Call, weight: Value) -> Value:
    """A matrix with its axes swapped, made once."""
    return call.builder.remember(("transposed", weight), lambda: call.op("Transpose", weight, perm=[1, 0]))


@converter("aten::addmm")
def addmm(call: Call, self: Value, mat1: Value, mat2: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    if call.dim(mat1, -1) == 0:  # a sum of nothing
        return _added_product(call, self, call.filled(call.dims, 0), beta, alpha)
    if is_float(call.dtype) and isinstance(beta, (int, float)) and isinstance(alpha, (int, float)):
        left, left_transposed = _untransposed(call, mat1)
        right, right_transposed = _untransposed(call, mat2)
        return call.op(
            "Gemm", left, right, self if beta != 0 else None,
            alpha=float(alpha), beta=float(beta), transA=left_transposed, transB=right_transposed,
        )  # fmt: skip
    return _added_product(call, self, call.op("MatMul", call.cast(mat1), call.cast(mat2)), beta, alpha)


def _untransposed(call: Call, matrix: Value) -> tuple[Value, int]:
    """The matrix that was transposed, where a Gemm can do it instead."""
    producer = matrix.producer()
    plain = producer is not None and producer.op_type == "Transpose" and call.rank(matrix) == 2
    source = producer.inputs[0] if plain and producer is not None else None
    return (source, 1) if source is not None else (matrix, 0)


@converter("aten::baddbmm", "aten::addmv")
def baddbmm(call: Call) -> Value:
    self, left, right, beta, alpha = list(call.arguments.values())[:5]
    return _added_product(call, self, call.op("MatMul", call.cast(left), call.cast(right)), beta, alpha)


def _added_product(call: Call, self: Value, product: Value, beta: Any, alpha: Any) -> Value:
    scaled = product if alpha == 1 else call.op("Mul", product, call.scalar(alpha))
    if beta == 0:
        return call.expand(scaled, call.dims)
    added = call.cast(self) if beta == 1 else call.op("Mul", call.cast(self), call.scalar(beta))
    return call.op("Add", added, scaled)


@converter("aten::outer", "aten::ger")
def outer(call: Call) -> Value:
    left, right = list(call.arguments.values())[:2]
    return call.op("Mul", call.op("Unsqueeze", call.cast(left), [1]), call.cast(right))


@converter("aten::_grouped_mm", "transformers::grouped_mm_fallback")
def grouped_mm(call: Call) -> Value:
    """Rows up to each offset times the matrix of their group; rows behind the last offset are zero."""
    rows, weight, offsets = list(call.arguments.values())[:3]
    if offsets is None or call.rank(rows) != 2 or call.rank(weight) != 3 or call.arguments.get("bias") is not None:
        raise Refused("groups of another layout than rows by matrices")
    count = call.dim(weight, 0)
    if not isinstance(count, int):
        raise Refused("a number of groups known only at run time")
    bounds = [call.constant([0], INT64), *_ends(call, offsets, count)]
    matrices = call.op("Split", weight, axis=0, num_outputs=count, outputs=count) if count > 1 else (weight,)
    parts: list[Value] = []
    for group, matrix in enumerate(matrices):
        part = call.op("Slice", rows, bounds[group], bounds[group + 1], [0])
        parts.append(call.op("MatMul", part, call.op("Squeeze", matrix, [0])))
    left = call.op("Sub", call.vector([call.dim(rows, 0)]), bounds[-1])
    tail = call.filled(call.op("Concat", left, call.vector([call.dim(weight, 2)]), axis=0), 0)
    return call.op("Concat", *parts, tail, axis=0)


def _ends(call: Call, offsets: Value, count: int) -> tuple[Value, ...]:
    ends = call.cast(offsets, INT64)
    return (ends,) if count == 1 else call.op("Split", ends, axis=0, num_outputs=count, outputs=count)
