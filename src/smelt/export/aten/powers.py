"""Powers, of floats and of whole numbers.

Input: calls of `pow`. Output: values. Invariant: whole numbers are multiplied as whole numbers, so that none is rounded
and they wrap around as torch's do; ONNX Runtime's own Pow of integers goes through double.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import onnx_ir as ir

from smelt.export.aten.repetition import repeated
from smelt.export.call import Call
from smelt.export.dtypes import INT64, is_float, is_integer
from smelt.export.registry import converter

Value = ir.Value
_BITS: Final = 63


@converter("aten::pow.Tensor_Tensor", "aten::pow.Tensor_Scalar", "aten::pow.Scalar")
def pow(call: Call, self: Any, exponent: Any) -> Value:
    base = call.cast(self)
    known = isinstance(exponent, (int, float)) and not isinstance(exponent, bool)
    if is_integer(call.dtype):
        return (
            _constant_power(call, base, int(exponent))
            if known and exponent >= 0
            else _whole_power(call, base, exponent)
        )
    if known and exponent in (1, 2, 3, 0.5, -1, -0.5) and is_float(call.dtype):
        return _small_power(call, base, exponent)
    return call.op("Pow", base, call.cast(exponent))


def _small_power(call: Call, base: Value, exponent: float) -> Value:
    if exponent >= 1:
        return _constant_power(call, base, int(exponent))
    if exponent == 0.5:
        return call.op("Sqrt", base)
    return call.op("Reciprocal", base if exponent == -1 else call.op("Sqrt", base))


def _constant_power(call: Call, base: Value, exponent: int) -> Value:
    """By squares: a product for every bit of the exponent."""
    result: Value | None = None
    while exponent:
        if exponent & 1:
            result = base if result is None else call.op("Mul", result, base)
        exponent >>= 1
        base = call.op("Mul", base, base) if exponent else base
    if result is not None:
        return result
    return call.op("Add", call.op("Mul", base, call.scalar(0)), call.scalar(1))


def _whole_power(call: Call, base: Value, exponent: Any) -> Value:
    """The same for exponents that differ from element to element: as many rounds as the largest of them has bits.

    A negative power is that of 1 and -1, and 0 for all others, as torch has it.
    """
    base, given = call.cast(base, INT64), call.cast(call.cast(exponent), INT64)
    zero, one, two = (call.constant(number, INT64) for number in (0, 1, 2))
    rest = call.op("Add", call.op("Abs", given), call.op("Mul", base, zero))  # of the result's shape
    first = call.op("Add", call.op("Mul", rest, zero), one)

    def step(_: Value, result: Value, square: Value, left: Value) -> Sequence[Value]:
        odd = call.op("Equal", call.op("Mod", left, two), one)
        product = call.op("Where", odd, call.op("Mul", result, square), result)
        return product, call.op("Mul", square, square), call.op("Div", left, two)

    result = repeated(call, _bits(call, rest), [first, base, rest], step)[0]
    unit = call.op("Equal", call.op("Abs", base), one)
    fraction = call.op("And", call.op("Less", given, zero), call.op("Not", unit))
    return call.cast(call.op("Where", fraction, zero, result))


def _bits(call: Call, whole: Value) -> Value:
    """How many bits the largest number has, as a scalar; 0 of none."""
    flat = call.op("Reshape", whole, call.constant([-1], INT64))
    largest = call.op("ReduceMax", call.op("Concat", flat, call.constant([0], INT64), axis=0), keepdims=1)
    powers = call.constant([1 << bit for bit in range(_BITS)], INT64)
    reached = call.cast(call.op("GreaterOrEqual", largest, powers), INT64)
    return call.op("ReduceSum", reached, keepdims=0)
