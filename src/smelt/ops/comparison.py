"""Comparisons, logic, bit operations and tests for special values."""

from __future__ import annotations

from smelt.ir.kernel import Expr, Tensor, Unsupported
from smelt.ir.kernel import expr as E
from smelt.ops.elementwise import float_operand, same_type
from smelt.ops.registry import Call, op

COMPARISONS = {"Equal": "eq", "Less": "lt", "Greater": "gt", "LessOrEqual": "le", "GreaterOrEqual": "ge"}
LOGIC = {"And": "and", "Or": "or", "Xor": "xor"}
BITS = {"BitwiseAnd": "band", "BitwiseOr": "bor", "BitwiseXor": "bxor"}


def binary(call: Call, name: str) -> Tensor:
    a, b = same_type(call.x(0), call.x(1))
    return call.k.map(lambda x, y: E.op(name, x, y), a, b)


@op("Equal", "Less", "Greater", since=7, kind="elementwise", steps=True)
@op("LessOrEqual", "GreaterOrEqual", since=12, kind="elementwise", steps=True)
def comparison(call: Call) -> Tensor:
    return binary(call, COMPARISONS[call.op])


@op(*LOGIC, since=7, kind="elementwise")
def logic(call: Call) -> Tensor:
    return binary(call, LOGIC[call.op])


@op("Not", since=7, kind="elementwise")
def negation(call: Call) -> Tensor:
    return call.k.map(lambda x: E.op("not", x), call.x())


@op(*BITS, since=18, kind="elementwise")
def bitwise(call: Call) -> Tensor:
    return binary(call, BITS[call.op])


@op("BitwiseNot", since=18, kind="elementwise")
def bitwise_not(call: Call) -> Tensor:
    return call.k.map(lambda x: E.op("bnot", x), call.x())


@op("BitShift", since=11, kind="elementwise")
def bit_shift(call: Call) -> Tensor:
    """A count outside the type's width leaves zero; to the right, a negative number leaves its sign."""
    direction = call.str("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise Unsupported("direction of BitShift is neither LEFT nor RIGHT")
    a, b = same_type(call.x(0), call.x(1))
    if direction == "LEFT" or a.dtype in E.UNSIGNED:
        return binary(call, "shl" if direction == "LEFT" else "shr")
    return call.k.map(_signed_right, a, b)


def _signed_right(x: Expr, count: Expr) -> Expr:
    most = E.const(8 * E.SIZE_BYTES[x.dtype] - 1, x.dtype)
    negative = E.op("lt", count, E.const(0, x.dtype))
    return E.op("shr", x, E.select(negative, most, E.op("min", count, most)))


@op("IsNaN", since=9, kind="elementwise")
def is_nan(call: Call) -> Tensor:
    return call.k.map(lambda x: E.op("isnan", x), float_operand(call))


@op("IsInf", since=10, kind="elementwise")
def is_inf(call: Call) -> Tensor:
    x = float_operand(call)
    names = {(True, True): "isinf", (True, False): "isinf_pos", (False, True): "isinf_neg"}
    name = names.get((bool(call.int("detect_positive", 1)), bool(call.int("detect_negative", 1))))
    if name is None:
        return call.k.const(False, "b", x.shape)
    return call.k.map(lambda v: E.op(name, v), x)
