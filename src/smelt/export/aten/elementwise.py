"""Arithmetic, comparisons, logic and rounding, element by element.

Input: calls. Output: values. Invariant: operands are cast to the result's type first, so that ONNX's rules (one type
for all) give torch's promotion; comparisons compute in the operands' common type.
"""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

from smelt.export.call import Call
from smelt.export.dtypes import BOOL, is_float, is_integer, promote
from smelt.export.expressions import boolean, cast, number, op, promoted
from smelt.export.records import Refused
from smelt.export.registry import converter, declare

Value = ir.Value

_UNARY = {
    "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh",
    "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "exp": "Exp", "log": "Log", "sqrt": "Sqrt",
    "erf": "Erf", "reciprocal": "Reciprocal", "special_erf": "Erf",
}  # fmt: skip
declare({f"aten::{name}": getattr(op, onnx)(cast("self")) for name, onnx in _UNARY.items()})
declare({
    "aten::rsqrt": op.Reciprocal(op.Sqrt(cast("self"))),
    "aten::exp2": op.Pow(number(2.0), cast("self")),
    # exp(x) - 1 without cancellation near 0.
    "aten::expm1": op.Mul(op.Tanh(op.Mul(cast("self"), number(0.5))), op.Add(op.Exp(cast("self")), number(1.0))),
    "aten::log2": op.Div(op.Log(cast("self")), number(math.log(2.0))),
    "aten::log10": op.Div(op.Log(cast("self")), number(math.log(10.0))),
    "aten::erfc": op.Sub(number(1.0), op.Erf(cast("self"))),
    "aten::square": op.Mul(cast("self"), cast("self")),
    "aten::deg2rad": op.Mul(cast("self"), number(math.pi / 180)),
    "aten::rad2deg": op.Mul(cast("self"), number(180 / math.pi)),
    "aten::abs": op.Abs("self"),
    "aten::neg": op.Neg("self"),
    "aten::isnan": op.IsNaN("self"),
    "aten::logical_not": op.Not(boolean("self")),
    "aten::logical_and": op.And(boolean("self"), boolean("other")),
    "aten::logical_or": op.Or(boolean("self"), boolean("other")),
    "aten::logical_xor": op.Xor(boolean("self"), boolean("other")),
})  # fmt: skip

_COMPARE = {"eq": "Equal", "gt": "Greater", "lt": "Less", "ge": "GreaterOrEqual", "le": "LessOrEqual"}
for _suffix in ("Tensor", "Scalar"):
    declare(
        {f"aten::{name}.{_suffix}": getattr(op, onnx)(*promoted("self", "other")) for name, onnx in _COMPARE.items()}
    )
    declare({f"aten::ne.{_suffix}": op.Not(op.Equal(*promoted("self", "other")))})


@converter("aten::add.Tensor", "aten::add.Scalar")
def add(call: Call, self: Value, other: Any, alpha: Any = 1) -> Value:
    return _arithmetic(call, "Add", self, other, alpha)


@converter("aten::sub.Tensor", "aten::sub.Scalar")
def sub(call: Call, self: Value, other: Any, alpha: Any = 1) -> Value:
    return _arithmetic(call, "Sub", self, other, alpha)


@converter("aten::rsub.Tensor", "aten::rsub.Scalar")
def rsub(call: Call, self: Value, other: Any, alpha: Any = 1) -> Value:
    return call.op("Sub", call.cast(other), _scaled(call, self, alpha))


def _arithmetic(call: Call, op_type: str, self: Value, other: Any, alpha: Any) -> Value:
    if call.dtype == BOOL:
        return call.op("Or", self, call.op("And", call.cast(other), call.scalar(bool(alpha))))
    return call.op(op_type, call.cast(self), _scaled(call, other, alpha))


def _scaled(call: Call, operand: Any, alpha: Any) -> Value:
    value = call.cast(operand)
    return value if alpha == 1 else call.op("Mul", value, call.scalar(alpha))


@converter("aten::mul.Tensor", "aten::mul.Scalar")
def mul(call: Call, self: Value, other: Any) -> Value:
    op_type = "And" if call.dtype == BOOL else "Mul"
    return call.op(op_type, call.cast(self), call.cast(other))


@converter("aten::div.Tensor", "aten::div.Scalar", "aten::div.Tensor_mode", "aten::div.Scalar_mode")
def div(call: Call, self: Value, other: Any, rounding_mode: str | None = None) -> Value:
    left, right = call.cast(self), call.cast(other)
    if rounding_mode is None:
        return call.op("Div", left, right)
    if rounding_mode == "floor":
        return _floor_divided(call, left, right)
    if not is_float(call.dtype):
        return call.op("Div", left, right)  # ONNX integers round towards zero
    return truncated(call, call.op("Div", left, right))


@converter("aten::floor_divide", "aten::floor_divide.Scalar")
def floor_divide(call: Call, self: Value, other: Any) -> Value:
    return _floor_divided(call, call.cast(self), call.cast(other))


def _floor_divided(call: Call, left: Value, right: Value) -> Value:
    """torch's own steps: (a - fmod(a, b)) / b, lowered by one where signs differ, then rounded to an integer."""
    if not is_float(call.dtype):
        rest = call.op("Mod", left, right)
        return call.op("Div", call.op("Sub", left, rest), right)
    rest = call.op("Mod", left, right, fmod=1)
    quotient = call.op("Div", call.op("Sub", left, rest), right)
    zero = call.scalar(0)
    inexact = call.op("Not", call.op("Equal", rest, zero))
    opposite = call.op("Xor", call.op("Less", right, zero), call.op("Less", rest, zero))
    lowered = call.op("Where", call.op("And", inexact, opposite), call.op("Sub", quotient, call.scalar(1)), quotient)
    floor = call.op("Floor", lowered)
    near = call.op("Greater", call.op("Sub", lowered, floor), call.scalar(0.5))
    rounded = call.op("Where", near, call.op("Add", floor, call.scalar(1)), floor)
    return call.op("Where", call.op("Equal", right, zero), call.op("Div", left, right), rounded)


def truncated(call: Call, value: Value) -> Value:
    """Rounded towards zero, keeping the sign of zero's side as torch does."""
    down, up = call.op("Floor", value), call.op("Ceil", value)
    return call.op("Where", call.op("Less", value, call.scalar(0, value.dtype)), up, down)


@converter("aten::remainder.Tensor", "aten::remainder.Scalar", "aten::remainder.Scalar_Tensor")
def remainder(call: Call, self: Any, other: Any) -> Value:
    left, right = call.cast(self), call.cast(other)
    if not is_float(call.dtype):
        return call.op("Mod", left, right)
    rest = call.op("Mod", left, right, fmod=1)
    zero = call.scalar(0)
    opposite = call.op("Xor", call.op("Less", right, zero), call.op("Less", rest, zero))
    wrong = call.op("And", opposite, call.op("Not", call.op("Equal", rest, zero)))
    return call.op("Where", wrong, call.op("Add", rest, right), rest)


@converter("aten::fmod.Tensor", "aten::fmod.Scalar")
def fmod(call: Call, self: Value, other: Any) -> Value:
    return call.op("Mod", call.cast(self), call.cast(other), fmod=1)


@converter("aten::sign", "aten::sgn")
def sign(call: Call, self: Value) -> Value:
    return self if self.dtype == BOOL else call.op("Sign", self)


@converter("aten::signbit")
def signbit(call: Call, self: Value) -> Value:
    if self.dtype == BOOL:
        return call.op("And", self, call.op("Not", self))
    if is_float(self.dtype):
        raise Refused("ONNX cannot see the sign of zero")
    return call.op("Less", self, 0)


def _rounding(op_type: str) -> Any:
    def convert(call: Call, self: Value) -> Value:
        return call.op(op_type, self) if is_float(self.dtype) else self

    return convert


declare({"aten::floor": _rounding("Floor"), "aten::ceil": _rounding("Ceil")})


@converter("aten::round", "aten::round.decimals")
def round(call: Call, self: Value, decimals: int = 0) -> Value:
    if not is_float(self.dtype):
        return self
    if decimals == 0:
        return call.op("Round", self)
    scale = call.scalar(10.0 ** abs(decimals), self.dtype)
    there, back = ("Mul", "Div") if decimals > 0 else ("Div", "Mul")
    return call.op(back, call.op("Round", call.op(there, self, scale)), scale)


@converter("aten::trunc", "aten::fix")
def trunc(call: Call, self: Value) -> Value:
    return truncated(call, self) if is_float(self.dtype) else self


@converter("aten::frac")
def frac(call: Call, self: Value) -> Value:
    return call.op("Sub", self, truncated(call, self))


@converter("aten::maximum", "aten::max.other")
def maximum(call: Call, self: Value, other: Value) -> Value:
    return _extreme(call, "Max", self, other)


@converter("aten::minimum", "aten::min.other")
def minimum(call: Call, self: Value, other: Value) -> Value:
    return _extreme(call, "Min", self, other)


def _extreme(call: Call, op_type: str, self: Value, other: Value) -> Value:
    if call.dtype == BOOL:
        return call.op("Or" if op_type == "Max" else "And", self, other)
    return call.op(op_type, call.cast(self), call.cast(other))


@converter("aten::fmax")
def fmax(call: Call, self: Value, other: Value) -> Value:
    return _ignoring_nan(call, "Max", self, other)


@converter("aten::fmin")
def fmin(call: Call, self: Value, other: Value) -> Value:
    return _ignoring_nan(call, "Min", self, other)


def _ignoring_nan(call: Call, op_type: str, self: Value, other: Value) -> Value:
    left, right = call.cast(self), call.cast(other)
    if not is_float(call.dtype):
        return _extreme(call, op_type, left, right)
    first = call.op("Where", call.op("IsNaN", left), right, left)
    second = call.op("Where", call.op("IsNaN", right), left, right)
    return call.op(op_type, first, second)


@converter("aten::clamp", "aten::clamp.Tensor", "aten::clip", "aten::clip.Tensor")
def clamp(call: Call, self: Value, min: Any = None, max: Any = None) -> Value:
    value = call.cast(self)
    plain = not isinstance(min, ir.Value) and not isinstance(max, ir.Value)
    if plain and is_float(call.dtype):
        low = None if min is None else call.scalar(min)
        return call.op("Clip", value, low, None if max is None else call.scalar(max))
    if min is not None:
        value = _bounded(call, "Max", value, call.cast(min))
    return value if max is None else _bounded(call, "Min", value, call.cast(max))


def _bounded(call: Call, op_type: str, value: Value, bound: Value) -> Value:
    return call.op(op_type, value, bound)


@converter("aten::clamp_min", "aten::clamp_min.Tensor")
def clamp_min(call: Call, self: Value, min: Any) -> Value:
    return call.op("Max", call.cast(self), call.cast(min))


@converter("aten::clamp_max", "aten::clamp_max.Tensor")
def clamp_max(call: Call, self: Value, max: Any) -> Value:
    return call.op("Min", call.cast(self), call.cast(max))


@converter("aten::where.self", "aten::where.ScalarOther", "aten::where.ScalarSelf", "aten::where.Scalar")
def where(call: Call, condition: Value, self: Any, other: Any) -> Value:
    return call.op("Where", call.cast(condition, BOOL), call.cast(self), call.cast(other))


@converter("aten::masked_fill.Scalar", "aten::masked_fill.Tensor")
def masked_fill(call: Call, self: Value, mask: Value, value: Any) -> Value:
    return call.op("Where", mask, call.cast(value), call.cast(self))


@converter("aten::isinf")
def isinf(call: Call, self: Value) -> Value:
    if not is_float(self.dtype):
        return call.filled(call.shape_of(self), False)
    return call.op("IsInf", self)


@converter("aten::isfinite")
def isfinite(call: Call, self: Value) -> Value:
    if not is_float(self.dtype):
        return call.filled(call.shape_of(self), True)
    return call.op("Not", call.op("Or", call.op("IsInf", self), call.op("IsNaN", self)))


@converter("aten::addcmul")
def addcmul(call: Call, self: Value, tensor1: Value, tensor2: Value, value: Any = 1) -> Value:
    product = call.op("Mul", call.cast(tensor1), call.cast(tensor2))
    return call.op("Add", call.cast(self), _scaled(call, product, value))


@converter("aten::addcdiv")
def addcdiv(call: Call, self: Value, tensor1: Value, tensor2: Value, value: Any = 1) -> Value:
    quotient = call.op("Div", call.cast(tensor1), call.cast(tensor2))
    return call.op("Add", call.cast(self), _scaled(call, quotient, value))


@converter("aten::lerp.Scalar", "aten::lerp.Tensor")
def lerp(call: Call, self: Value, end: Value, weight: Any) -> Value:
    """From the nearer end, as torch computes it."""
    start, stop, share = call.cast(self), call.cast(end), call.cast(weight)
    step = call.op("Sub", stop, start)
    low = call.op("Add", start, call.op("Mul", share, step))
    high = call.op("Sub", stop, call.op("Mul", step, call.op("Sub", call.scalar(1), share)))
    return call.op("Where", call.op("Less", call.op("Abs", share), call.scalar(0.5)), low, high)


def _bitwise(logic: str, bits: str) -> Any:
    def convert(call: Call, self: Any, other: Any) -> Value:
        return call.op(logic if call.dtype == BOOL else bits, call.cast(self), call.cast(other))

    return convert


_DUNDERS = {
    "and": _bitwise("And", "BitwiseAnd"), "or": _bitwise("Or", "BitwiseOr"), "xor": _bitwise("Xor", "BitwiseXor"),
}  # fmt: skip
for _suffix in ("Tensor", "Scalar", "Scalar_Tensor"):
    declare({
        **{f"aten::__{name}__.{_suffix}": convert for name, convert in _DUNDERS.items() if _suffix != "Scalar_Tensor"},
        f"aten::bitwise_and.{_suffix}": _bitwise("And", "BitwiseAnd"),
        f"aten::bitwise_or.{_suffix}": _bitwise("Or", "BitwiseOr"),
        f"aten::bitwise_xor.{_suffix}": _bitwise("Xor", "BitwiseXor"),
    })  # fmt: skip


@converter("aten::bitwise_not")
def bitwise_not(call: Call, self: Value) -> Value:
    return call.op("Not" if self.dtype == BOOL else "BitwiseNot", self)


@converter("aten::isclose")
def isclose(
    call: Call, self: Value, other: Value, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Value:
    if is_integer(promote(self, other)):
        raise Refused("isclose of integers")
    left, right = call.promoted(self, other)
    gap = call.op("Abs", call.op("Sub", left, right))
    allowed = call.op("Add", call.op("Mul", call.op("Abs", right), rtol), atol)
    finite = call.op("Not", call.op("Or", call.op("IsInf", left), call.op("IsInf", right)))
    close = call.op("Or", call.op("And", finite, call.op("LessOrEqual", gap, allowed)), call.op("Equal", left, right))
    if not equal_nan:
        return close
    return call.op("Or", close, call.op("And", call.op("IsNaN", left), call.op("IsNaN", right)))


@converter("aten::log1p")
def log1p(call: Call, self: Value) -> Value:
    """log(1 + x); near 0 the rounding of 1 + x is divided out."""
    x, one = call.cast(self), call.scalar(1)
    shifted = call.op("Add", x, one)
    plain = call.op("Log", shifted)
    rounded = call.op("Sub", shifted, one)
    exact = call.op("Equal", rounded, call.scalar(0))
    near = call.op("Div", call.op("Mul", plain, x), call.op("Where", exact, one, rounded))
    near = call.op("Where", exact, x, near)
    return call.op("Where", call.op("Less", call.op("Abs", x), call.scalar(0.5)), near, plain)


@converter("aten::atan2", "aten::arctan2")
def atan2(call: Call, self: Value, other: Value) -> Value:
    y, x, zero, pi = call.cast(self), call.cast(other), call.scalar(0), call.scalar(math.pi)
    left = call.op("Less", x, zero)
    half = call.op("Mul", call.op("Sign", y), call.scalar(math.pi / 2))
    slope = call.op("Atan", call.op("Div", y, x))
    flipped = call.op("Where", call.op("Less", y, zero), call.op("Sub", slope, pi), call.op("Add", slope, pi))
    quadrant = call.op("Where", left, flipped, slope)
    upright = call.op("Where", call.op("Equal", x, zero), half, quadrant)
    infinite = call.op("And", call.op("IsInf", x), call.op("IsInf", y))
    corner = call.op(
        "Mul", call.op("Sign", y), call.op("Where", left, call.scalar(3 * math.pi / 4), call.scalar(math.pi / 4))
    )
    return call.op("Where", infinite, corner, upright)
