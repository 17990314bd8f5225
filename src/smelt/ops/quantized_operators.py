"""Quantized convolutions and products as single operators: QLinearConv, QLinearMatMul, QGemm, ConvInteger ...

Input: quantized tensors, each followed by its scale and zero point. Output: what the operands' integers give, scaled
and quantized again. Invariant: sums are those of integers (float32 holds them up to 2^24; a backend may compute them in
int32); the result is rounded half to even, then the zero point is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast as typed

from smelt.ir.kernel import Expr, Tensor, Unsupported, ix
from smelt.ir.kernel import expr as E

from .convolution import conv
from .integer_product import matmul_integer
from .product import matmul
from .quantize import RANGE, dynamic_quantize, saturated
from .registry import Call, op
from .window import geometry_of, kernel_of
from .work import conv_work, gemm_work, matmul_work, quantized_conv_work

MICROSOFT = "com.microsoft"
BYTES = ("u8", "i8")


def _along(call: Call, parameter: Tensor, rank: int, axis: int) -> Tensor:
    """One number, or one for each index of an axis, seen so that it broadcasts to a tensor of this rank."""
    if parameter.elements.const == 1:
        return call.k.reshape(parameter, ())
    if parameter.rank != 1:
        raise Unsupported("a scale or zero point of more than one axis")
    return call.k.reshape(parameter, [parameter.shape[0] if d == axis else ix(1) for d in range(rank)])


def centred(call: Call, q: Tensor, zero: Tensor | None, axis: int, dtype: str = "f32") -> Tensor:
    """The integers less their zero point."""
    if q.dtype not in BYTES or (zero is not None and zero.dtype != q.dtype):
        raise Unsupported(f"a quantized operand of {q.dtype}")
    if zero is None:
        return call.k.cast(q, dtype)
    moved = _along(call, zero, q.rank, axis % q.rank)
    return call.k.map(lambda value, shift: E.op("sub", E.cast(value, dtype), E.cast(shift, dtype)), q, moved)


def _factor(call: Call, scales: Sequence[Tensor]) -> Tensor:
    """The scale of a product in steps of the result: x * w / y."""
    if any(scale.dtype != "f32" for scale in scales):
        raise Unsupported("a scale that is not float32")
    first, second, result = scales
    made = call.k.map(lambda a, b: E.op("mul", a, b), first, second)
    return call.k.map(lambda a, b: E.op("div", a, b), made, call.k.reshape(result, ()))


def _requantized(call: Call, sums: Tensor, factor: Tensor, zero: Tensor) -> Tensor:
    if zero.dtype not in RANGE or zero.elements.const != 1:
        raise Unsupported(f"a result quantized to {zero.dtype}")
    dtype = zero.dtype

    def body(total: Expr, scale: Expr, shift: Expr) -> Expr:
        rounded = E.op("round", E.op("mul", total, scale))
        return saturated(E.op("add", rounded, E.cast(shift, "f32")), dtype)

    return call.k.map(body, sums, factor, call.k.reshape(zero, ()))


@op("QLinearConv", since=10, kind="product", makes="convolution", steps=True, work=quantized_conv_work)
def qlinear_conv(call: Call) -> Tensor:
    x, w, rank = call.x(0), call.x(3), call.x(0).rank
    bias = call.maybe(8)
    inputs = [centred(call, x, call.x(2), 1), centred(call, w, call.x(5), 0)]
    inputs += [] if bias is None else [call.k.cast(bias, "f32")]
    sums = typed("Tensor", conv(replace(call, op="Conv", inputs=inputs)))
    scales = [_along(call, call.x(1), rank, 1), _along(call, call.x(4), rank, 1), call.x(6)]
    return _requantized(call, sums, _factor(call, scales), call.x(7))


@op("QLinearMatMul", since=10, kind="product", steps=True, work=matmul_work)
def qlinear_matmul(call: Call) -> Tensor:
    a, b = call.x(0), call.x(3)
    inputs = [centred(call, a, call.x(2), -2), centred(call, b, call.x(5), -1)]
    sums = typed("Tensor", matmul(replace(call, op="MatMul", inputs=inputs)))
    scales = [_along(call, call.x(1), a.rank, a.rank - 2), _along(call, call.x(4), b.rank, b.rank - 1), call.x(6)]
    return _requantized(call, sums, _factor(call, scales), call.x(7))


@op("ConvInteger", since=10, kind="product", makes="convolution", work=conv_work)
def conv_integer(call: Call) -> Tensor:
    x, w, groups = call.x(0), call.x(1), call.int("group", 1)
    if x.rank < 3 or w.rank != x.rank or groups < 1:
        raise Unsupported(f"an input of rank {x.rank} and weights of rank {w.rank}")
    call.k.require_equal(x.shape[1], w.shape[1] * groups, "the channels of the input and of the weights must agree")
    rows = w.shape[0].const
    if rows is None or w.shape[1].const is None or rows % groups:
        raise Unsupported("the weights' channels are known only at run time, or do not divide into groups")
    geometry = geometry_of(call, x, kernel_of(call, w))
    left, right = centred(call, x, call.maybe(2), 1, "i32"), centred(call, w, call.maybe(3), 0, "i32")
    return call.k.convolution(left, right, geometry, groups)


def _to_float(call: Call, sums: Tensor, scales: Sequence[Tensor], bias: Tensor | None) -> Tensor:
    """Sums times both scales, plus one number for each column."""
    first, second = scales
    factor = call.k.map(lambda a, b: E.op("mul", a, b), first, second)
    made = call.k.map(lambda total, scale: E.op("mul", total, scale), sums, factor)
    return made if bias is None else call.k.map(lambda e, c: E.op("add", e, c), made, bias)


@op("MatMulIntegerToFloat", domain=MICROSOFT, kind="product", work=matmul_work)
def matmul_integer_to_float(call: Call) -> Tensor:
    """Inputs: A, B, their scales, their zero points, a bias."""
    a, b = call.x(0), call.x(1)
    inputs = [centred(call, a, call.maybe(4), -2), centred(call, b, call.maybe(5), -1)]
    sums = typed("Tensor", matmul(replace(call, op="MatMul", inputs=inputs)))
    scales = [_along(call, call.x(2), a.rank, a.rank - 2), _along(call, call.x(3), b.rank, b.rank - 1)]
    return _to_float(call, sums, scales, call.maybe(6))


def with_quantized_rows(call: Call) -> Call:
    """DynamicQuantizeMatMul as a MatMulIntegerToFloat: A is quantized as DynamicQuantizeLinear does.

    Inputs: A, B, the scale and zero point of B, a bias."""
    if call.x(0).dtype != "f32":
        raise Unsupported(f"a quantized product of {call.x(0).dtype}")
    made = dynamic_quantize(replace(call, op="DynamicQuantizeLinear", inputs=[call.x(0)]))
    q, scale, zero = typed("Sequence[Tensor]", made)
    inputs = [q, call.x(1), scale, call.x(2), zero, call.maybe(3), call.maybe(4)]
    return replace(call, op="MatMulIntegerToFloat", inputs=inputs)


@op("DynamicQuantizeMatMul", domain=MICROSOFT, kind="product", steps=True, work=matmul_work)
def dynamic_quantize_matmul(call: Call) -> Tensor:
    return typed("Tensor", matmul_integer_to_float(with_quantized_rows(call)))


def _beside(call: Call, sums: Tensor, bias: Tensor) -> Tensor:
    made = call.k.map(lambda e, c: E.op("add", e, c), sums, bias)
    for got, wanted in zip(made.shape, sums.shape, strict=True):
        call.k.require_equal(got, wanted, "the bias of a product must broadcast to it")
    return made


@op("QGemm", domain=MICROSOFT, kind="product", steps=True, work=gemm_work)
def qgemm(call: Call) -> Tensor:
    """Inputs: A, its scale and zero point, the same of B, C in int32, scale and zero point of the result: without them
    it is float32. C has the scale of the products."""
    k, a, b, bias, zero = call.k, call.x(0), call.x(3), call.maybe(6), call.maybe(8)
    if a.rank != 2 or b.rank != 2:
        raise Unsupported("QGemm takes matrices")
    if bias is not None and (bias.dtype != "i32" or bias.rank > 2):
        raise Unsupported("a bias of QGemm is int32, of at most two axes")
    if call.x(1).elements.const != 1 or call.x(2).elements.const != 1:
        raise Unsupported("QGemm has one scale and zero point of A")
    left, right = (
        k.transpose(x, (1, 0)) if call.int(transposed, 0) else x for x, transposed in ((a, "transA"), (b, "transB"))
    )
    product = replace(call, op="MatMulInteger", inputs=[left, right, call.x(2), call.x(5)])
    sums = typed("Tensor", matmul_integer(product))
    if bias is not None:
        sums = _beside(call, sums, bias)
    scales = [k.reshape(call.x(1), ()), _along(call, call.x(4), 2, 1)]
    alpha = E.const(call.float("alpha", 1.0), "f32")
    scales[0] = k.map(lambda scale: E.op("mul", alpha, scale), scales[0])
    if zero is None:
        return _to_float(call, k.cast(sums, "f32"), scales, None)
    return _requantized(call, k.cast(sums, "f32"), _factor(call, [*scales, call.x(7)]), zero)
