"""Linear quantization to and from 8- and 16-bit integers: per tensor, per axis and in blocks along an axis.

Input: a tensor, a scale, an optional zero point of the scale's shape. Output: the quantized or restored tensor.
Invariant: the quotient is rounded half to even in the scale's precision, and saturates.
"""

from __future__ import annotations

from collections.abc import Sequence

from smelt.ir.kernel import Expr, Tensor, Unsupported, fn, ix
from smelt.ir.kernel import expr as E
from smelt.ops.cast import target_type
from smelt.ops.elementwise import number
from smelt.ops.registry import Call, op

RANGE = {"u8": (0, 255), "i8": (-128, 127), "u16": (0, 65535), "i16": (-32768, 32767)}
RESTORABLE = (*RANGE, "i32")
CONTRIB = "com.microsoft"


def spread(call: Call, x: Tensor, parameter: Tensor) -> Tensor:
    """A scale or zero point, seen so that it broadcasts to x."""
    block = call.int("block_size", 0)
    axis = call.int("axis", 1)
    axis += x.rank if axis < 0 else 0
    if block:
        return _blocks(call, x, parameter, axis, block)
    if parameter.rank > 1:
        raise Unsupported("a scale of more than one axis needs a block size")
    if parameter.rank == 0:
        return parameter
    if not 0 <= axis < x.rank:
        call.k.require_equal(parameter.shape[0], 1, "a scale for no axis must have one element")
        return call.k.reshape(parameter, ())
    return call.k.reshape(parameter, [parameter.shape[0] if d == axis else ix(1) for d in range(x.rank)])


def _blocks(call: Call, x: Tensor, parameter: Tensor, axis: int, block: int) -> Tensor:
    if parameter.rank != x.rank or not 0 <= axis < x.rank or block < 0:
        raise Unsupported("a scale in blocks has the rank of its input and a valid axis")
    for d, (size, wanted) in enumerate(zip(parameter.shape, x.shape, strict=True)):
        needed = fn("floordiv", wanted + (block - 1), block) if d == axis else wanted
        call.k.require_equal(size, needed, "a scale in blocks covers its input")
    return call.k.view(parameter, x.shape, lambda w: [i // block if d == axis else i for d, i in enumerate(w)])


def _same_shape(call: Call, made: Tensor, x: Tensor) -> Tensor:
    if made.rank != x.rank:
        raise Unsupported("a scale has more axes than its input")
    for got, wanted in zip(made.shape, x.shape, strict=True):
        call.k.require_equal(got, wanted, "a scale must broadcast to its input")
    return made


def saturated(value: Expr, dtype: str) -> Expr:
    low, high = RANGE[dtype]
    return E.cast(E.op("min", E.op("max", value, number(low, value)), number(high, value)), dtype)


def _precision(call: Call, scale: Tensor) -> str:
    code = call.int("precision", 0)
    dtype = target_type(code) if code else scale.dtype
    if dtype not in E.FLOATS:
        raise Unsupported(f"a scale of {dtype} has no kernel")
    return dtype


@op("QuantizeLinear", since=10, kind="elementwise", steps=True, flops=3)
@op("QuantizeLinear", domain=CONTRIB, kind="elementwise", steps=True, flops=3)
def quantize(call: Call) -> Tensor:
    x, scale, zero = call.x(0), call.x(1), call.maybe(2)
    code = call.int("output_dtype", 0)
    dtype = zero.dtype if zero is not None else target_type(code) if code else "u8"
    if dtype not in RANGE:
        raise Unsupported(f"quantization to {dtype} has no kernel")
    precision = _precision(call, scale)

    def body(value: Expr, step: Expr, *shift: Expr) -> Expr:
        scaled = E.op("round", E.op("div", E.cast(value, precision), E.cast(step, precision)))
        return saturated(E.op("add", scaled, E.cast(shift[0], precision)) if shift else scaled, dtype)

    return _same_shape(call, call.k.map(body, x, *_parameters(call, x, scale, zero)), x)


@op("DequantizeLinear", since=10, kind="elementwise", flops=2)
@op("DequantizeLinear", domain=CONTRIB, kind="elementwise", flops=2)
def dequantize(call: Call) -> Tensor:
    x, scale, zero = call.x(0), call.x(1), call.maybe(2)
    if x.dtype not in RESTORABLE or (zero is not None and zero.dtype != x.dtype):
        raise Unsupported(f"dequantization of {x.dtype} has no kernel")
    code = call.int("output_dtype", 0)
    dtype = target_type(code) if code else scale.dtype
    if dtype not in E.FLOATS:
        raise Unsupported(f"a scale of {dtype} has no kernel")

    def body(value: Expr, step: Expr, *shift: Expr) -> Expr:
        wide = E.cast(value, dtype)
        centred = E.op("sub", wide, E.cast(shift[0], dtype)) if shift else wide
        return E.op("mul", centred, E.cast(step, dtype))

    return _same_shape(call, call.k.map(body, x, *_parameters(call, x, scale, zero)), x)


def _parameters(call: Call, x: Tensor, scale: Tensor, zero: Tensor | None) -> Sequence[Tensor]:
    return [spread(call, x, p) for p in (scale, zero) if p is not None]


@op("DynamicQuantizeLinear", since=11, kind="reduction", steps=True)
def dynamic_quantize(call: Call) -> list[Tensor]:
    """The range always holds 0. A tensor of zeros has scale 1, as in ONNX Runtime."""
    x, k = call.x(), call.k
    axes = list(range(x.rank))
    top, bottom = (k.reshape(k.reduce(kind, x, axes), ()) for kind in ("max", "min"))
    scale = k.map(_scale, top, bottom)
    zero = k.map(lambda low, step: saturated(E.op("round", _zero_point(low, step)), "u8"), bottom, scale)
    return [k.map(_quantized, x, scale, zero), scale, zero]


def _scale(top: Expr, bottom: Expr) -> Expr:
    zero = number(0.0, top)
    high, low = E.op("max", top, zero), E.op("min", bottom, zero)
    step = E.op("div", E.op("sub", high, low), number(255.0, top))
    return E.select(E.op("eq", high, low), number(1.0, top), step)


def _zero_point(bottom: Expr, step: Expr) -> Expr:
    low = E.op("min", bottom, number(0.0, bottom))
    return E.op("sub", number(0.0, bottom), E.op("div", low, step))


def _quantized(value: Expr, step: Expr, zero: Expr) -> Expr:
    rounded = E.op("round", E.op("div", value, step))
    return saturated(E.op("add", rounded, E.cast(zero, rounded.dtype)), "u8")
