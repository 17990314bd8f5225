"""Matrix products.

Input: operands of MatMul, Gemm and ONNX Runtime's fused forms of them. Output: products with what is scaled or added
around them. Invariant: float32 matrices only; transpositions are read in place and never stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from smelt.ir.kernel import Tensor, Unsupported, ix
from smelt.ir.kernel import expr as E

from .registry import Call, op
from .work import gemm_work, matmul_work

Array = np.ndarray[Any, Any]
MICROSOFT = "com.microsoft"


def times_operand(call: Call, a: Tensor, *, transposed: bool = False, transposed_batch: bool = False) -> Tensor:
    """A times operand 1, which is transposed first when `transposed`."""
    k, b = call.k, call.x(1)
    if a.dtype != "f32" or b.dtype != "f32" or min(a.rank, b.rank) < 2:
        raise Unsupported("a product of other than matrices of float32")
    return k.contraction(a, _transposed(call, b, transposed, transposed_batch))


def _transposed(call: Call, x: Tensor, transpose: bool, transpose_batch: bool) -> Tensor:
    """The first axis behind the other batch axes, then the last two exchanged, each when requested for."""
    perm = [*range(1, x.rank - 1), 0, x.rank - 1] if transpose_batch and x.rank > 2 else list(range(x.rank))
    return call.k.transpose(x, (*perm[:-2], perm[-1], perm[-2]) if transpose else perm)


def _scaled(call: Call, x: Tensor, factor: float) -> Tensor:
    return x if factor == 1.0 else call.k.map(lambda e: E.op("mul", e, E.const(factor, "f32")), x)


@op("MatMul", since=1, kind="product", work=matmul_work)
def matmul(call: Call) -> Tensor:
    a, b, k = call.x(0), call.x(1), call.k
    if min(a.rank, b.rank) >= 2:
        return times_operand(call, a)
    if a.dtype != "f32" or b.dtype != "f32" or 0 in (a.rank, b.rank):
        raise Unsupported("a product of other than vectors and matrices of float32")
    # A vector is a row on the left and a column on the right, and leaves no axis behind.
    row = k.reshape(a, (ix(1), *a.shape)) if a.rank == 1 else a
    column = k.reshape(b, (*b.shape, ix(1))) if b.rank == 1 else b
    made = k.contraction(row, column)
    gone = [axis for axis, vector in ((-2, a.rank == 1), (-1, b.rank == 1)) if vector]
    return k.squeeze(made, gone)


def _gemm(call: Call) -> Tensor:
    a, k = call.x(0), call.k
    if a.rank != 2 or call.x(1).rank != 2:
        raise Unsupported("Gemm takes matrices")
    if call.int("transA", 0):
        a = k.transpose(a, (1, 0))
    out = _scaled(call, times_operand(call, a, transposed=bool(call.int("transB", 0))), call.float("alpha", 1.0))
    bias = call.maybe(2)
    if bias is None:
        return out
    if bias.rank > 2:
        raise Unsupported("a bias of more than two axes")
    return k.map(lambda e, c: E.op("add", e, c), out, _scaled(call, bias, call.float("beta", 1.0)))


@op("Gemm", since=7, kind="product", work=gemm_work)
def gemm(call: Call) -> Tensor:
    return _gemm(call)


def fused_matmul_reference(a: Array, b: Array, alpha: float = 1.0, **transposed: int) -> Array:
    left = _transposed_array(a, transposed.get("transA", 0), transposed.get("transBatchA", 0))
    return alpha * (left @ _transposed_array(b, transposed.get("transB", 0), transposed.get("transBatchB", 0)))


def _transposed_array(x: Array, transpose: int, transpose_batch: int) -> Array:
    if transpose_batch and x.ndim > 2:
        x = np.moveaxis(x, 0, -2)
    return np.swapaxes(x, -1, -2) if transpose and x.ndim > 1 else x


@op(
    "FusedMatMul",
    "TransposeMatMul",
    domain=MICROSOFT,
    kind="product",
    work=matmul_work,
    reference=fused_matmul_reference,
)
def fused_matmul(call: Call) -> Tensor:
    a = call.x(0)
    if a.rank < 2:
        raise Unsupported("a product of other than matrices of float32")
    a = _transposed(call, a, bool(call.int("transA", 0)), bool(call.int("transBatchA", 0)))
    transposed, transposed_batch = bool(call.int("transB", 0)), bool(call.int("transBatchB", 0))
    return _scaled(
        call, times_operand(call, a, transposed=transposed, transposed_batch=transposed_batch), call.float("alpha", 1.0)
    )
