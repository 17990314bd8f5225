"""Matrix products with constant right operands, which are packed ahead of time."""

from __future__ import annotations

from smelt.ir.kernel import Refusal, Tensor
from smelt.ir.kernel import expr as E

from .registry import Call, op


def packed_product(call: Call, a: Tensor, position: int, *, transposed: bool) -> Tensor:
    b = call.pack(position, "turned" if transposed else "plain")
    if b is None:
        raise Refusal("the right operand is not a constant matrix of float32")
    if a.dtype != "f32" or a.rank < 2:
        raise Refusal("the left operand is not a matrix of float32")
    depth, columns = call.x(position).shape[::-1] if transposed else call.x(position).shape
    call.k.require_equal(a.shape[-1], depth, "the inner sizes of a product must agree")
    return call.k.matmul_packed(a, b, columns)


@op("MatMul", since=1, kind="product")
def matmul(call: Call) -> Tensor:
    a, b = call.x(0), call.x(1)
    if call.pack(1, "plain") is not None:
        return packed_product(call, a, 1, transposed=False)
    if a.dtype != "f32" or min(a.rank, b.rank) < 2:
        raise Refusal("a product of other than matrices of float32")
    return call.k.product(a, b)


@op("Gemm", since=7, kind="product")
def gemm(call: Call) -> Tensor:
    a, k = call.x(0), call.k
    if call.int("transA", 0):
        a = k.transpose(a, (1, 0))
    out = packed_product(call, a, 1, transposed=bool(call.int("transB", 0)))
    alpha, beta = call.float("alpha", 1.0), call.float("beta", 1.0)
    if alpha != 1.0:
        out = k.map(lambda e: E.op("mul", e, E.const(alpha, "f32")), out)
    bias = call.maybe(2)
    if bias is None:
        return out
    if beta != 1.0:
        bias = k.map(lambda e: E.op("mul", e, E.const(beta, "f32")), bias)
    return k.map(lambda e, c: E.op("add", e, c), out, k.expand(bias, out.shape) if bias.rank > 2 else bias)
