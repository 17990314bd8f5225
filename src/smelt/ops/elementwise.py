"""Arithmetic and elementary functions, element by element, with NumPy broadcasting (opset 7 on)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from smelt.ir.kernel import Builder, Expr, Function, Tensor, Unsupported, ix
from smelt.ir.kernel import expr as E
from smelt.ops.functions import given, unit
from smelt.ops.registry import Call, op

Body = Callable[..., Expr]


def float_operand(call: Call, position: int = 0) -> Tensor:
    """An operand of a function that is stated for float types only."""
    x = call.x(position)
    if x.dtype not in E.FLOATS:
        raise Unsupported(f"{call.op} of {x.dtype} has no kernel; float32 and float64 have")
    return x


def same_type(*operands: Tensor) -> Sequence[Tensor]:
    kinds = {t.dtype for t in operands}
    if len(kinds) > 1:
        raise Unsupported(f"operands differ in type: {', '.join(sorted(kinds))}")
    return operands


def number(value: float, like: Expr) -> Expr:
    return E.const(value, like.dtype)


# one operand

FUNCTIONS = {
    "Sqrt": "sqrt", "Exp": "exp", "Log": "log", "Reciprocal": "recip", "Erf": "erf", "Tanh": "tanh",
    "Sigmoid": "sigmoid", "Softplus": "softplus", "Floor": "floor", "Ceil": "ceil", "Round": "round",
    "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan",
    "Sinh": "sinh", "Cosh": "cosh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh",
}  # fmt: skip


# Multiply-adds that a float32 polynomial of full accuracy takes, as flops.
FUNCTION_FLOPS = {"Exp": 16, "Tanh": 24, "Erf": 24, "Sigmoid": 20, "Log": 20, "Sin": 16, "Cos": 16, "Softplus": 36}


@op(*FUNCTIONS, since=7, kind="elementwise", steps=("Floor", "Ceil", "Round"), flops=FUNCTION_FLOPS)
def function(call: Call) -> Tensor:
    name = FUNCTIONS[call.op]
    return call.k.map(lambda x: E.op(name, x), float_operand(call))


@op("Abs", since=7, kind="elementwise")
def absolute(call: Call) -> Tensor:
    x = call.x()
    return x if x.dtype in E.UNSIGNED else call.k.map(lambda v: E.op("abs", v), x)


@op("Neg", since=7, kind="elementwise")
def negative(call: Call) -> Tensor:
    return call.k.map(lambda v: E.op("neg", v), call.x())


@op("Sign", since=9, kind="elementwise", steps=True)
def sign(call: Call) -> Tensor:
    x = call.x()
    return call.k.map(sign_of, x)


def sign_of(x: Expr) -> Expr:
    if x.dtype in E.FLOATS:
        return E.op("sign", x)
    zero, one = number(0, x), number(1, x)
    positive = E.select(E.op("gt", x, zero), one, zero)
    return positive if x.dtype in E.UNSIGNED else E.select(E.op("lt", x, zero), number(-1, x), positive)


@op("Identity", since=7, kind="movement", cost="view")
def identity(call: Call) -> Tensor:
    return call.x()


# two operands

ARITHMETIC = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div"}


@op(*ARITHMETIC, since=7, kind="elementwise")
def arithmetic(call: Call) -> Tensor:
    name = ARITHMETIC[call.op]
    a, b = same_type(call.x(0), call.x(1))
    b = divisor(call.k, b) if name == "div" else b
    return call.k.map(lambda x, y: E.op(name, x, y), a, b)


def divisor(k: Builder, b: Tensor) -> Tensor:
    """What an integer is divided by: where it is data, a 0 in it fails the call, as in stock ONNX Runtime. Sizes and
    constants need no look at run time."""
    if b.dtype in E.FLOATS:
        return b
    known = k.values(b)
    if known is not None and all(v.const is not None or all(s.nonneg for s in v.syms) for v in known):
        if any(v.const == 0 for v in known):
            raise Unsupported("an integer division by zero")
        return b
    (checked,) = k.function(
        Function(
            name=f"smelt_nonzero_{b.dtype}",
            text=unit("functions/nonzero_unit.h", b.dtype),
            operands=(b,),
            results=((b.shape, b.dtype),),
            numbers=(b.elements,),
            factors=(),
            scratch_bytes=ix(0),
            flops=b.elements,
            reference=lambda arrays, _numbers, _factors: (given(arrays),),
        )
    )
    return checked


@op("Mod", since=10, kind="elementwise", steps=True)
def modulo(call: Call) -> Tensor:
    """With the divisor's sign, or by `fmod` with the dividend's."""
    a, b = same_type(call.x(0), call.x(1))
    b = divisor(call.k, b)
    if call.int("fmod", 0):
        return call.k.map(lambda x, y: E.op("fmod", x, y), a, b)
    return call.k.map(float_modulo if a.dtype in E.FLOATS else lambda x, y: E.op("mod", x, y), a, b)


def float_modulo(x: Expr, y: Expr) -> Expr:
    zero = number(0.0, x)
    rest = E.op("fmod", x, y)
    negative = E.op("lt", y, zero)
    astray = E.op("xor", E.op("lt", rest, zero), negative)
    signed_zero = E.select(negative, number(-0.0, x), zero)
    return E.select(E.op("eq", rest, zero), signed_zero, E.select(astray, E.op("add", rest, y), rest))


@op("Pow", since=7, kind="elementwise", flops=2)  # squares and cubes in practice
def power(call: Call) -> Tensor:
    """The result has the base's type; from opset 12 on the exponent may have another."""
    base, exponent = call.x(0), call.x(1)
    return call.k.map(power_of, base, exponent)


def power_of(x: Expr, y: Expr) -> Expr:
    if isinstance(y.kind, E.Const):
        simple = _constant_power(x, float(y.kind.value))
        if simple is not None:
            return simple
    if x.dtype in E.FLOATS:
        return E.op("pow", x, E.cast(y, x.dtype))
    return _integer_power(x, y)


def _constant_power(x: Expr, exponent: float) -> Expr | None:
    """Small exponents as products, which are exact for integers and never less accurate than pow for floats."""
    square = E.op("mul", x, x)
    products = {1.0: x, 2.0: square, 3.0: E.op("mul", square, x), 4.0: E.op("mul", square, square)}
    if exponent in products:
        return products[exponent]
    if x.dtype not in E.FLOATS:
        return None
    if exponent == -1.0:
        return E.op("recip", x)
    if exponent in (0.5, -0.5):
        root = _half_power(x)
        return root if exponent > 0 else E.op("recip", root)
    return None


def _half_power(x: Expr) -> Expr:
    """pow(x, 0.5): unlike sqrt, it is +0 at -0 and +inf at -inf."""
    infinity = number(float("inf"), x)
    root = E.op("sqrt", E.op("add", x, number(0.0, x)))
    return E.select(E.op("eq", x, number(float("-inf"), x)), infinity, root)


def _integer_power(x: Expr, y: Expr) -> Expr:
    """In double precision; a result within rounding distance of a whole number is that number."""
    result = E.op("pow", E.cast(x, "f64"), E.cast(y, "f64"))
    whole = E.op("round", result)
    gap = E.op("abs", E.op("sub", result, whole))
    near = E.op("le", gap, E.op("mul", E.op("abs", whole), number(4e-15, whole)))
    return E.cast(E.select(near, whole, result), x.dtype)


# any number of operands


def folded(name: str) -> Body:
    def body(first: Expr, *rest: Expr) -> Expr:
        for value in rest:
            first = E.op(name, first, value)
        return first

    return body


VARIADIC = {"Max": "max", "Min": "min", "Sum": "add"}


@op(*VARIADIC, since=7, kind="elementwise")
def variadic(call: Call) -> Tensor:
    operands = same_type(*(call.x(i) for i in range(len(call.inputs))))
    return operands[0] if len(operands) == 1 else call.k.map(folded(VARIADIC[call.op]), *operands)


@op("Mean", since=7, kind="elementwise")
def mean(call: Call) -> Tensor:
    operands = same_type(*(call.x(i) for i in range(len(call.inputs))))
    total = folded("add")
    count = float(len(operands))

    def body(*values: Expr) -> Expr:
        return E.op("div", total(*values), number(count, values[0]))

    return operands[0] if len(operands) == 1 else call.k.map(body, *operands)


@op("Where", since=9, kind="elementwise")
def where(call: Call) -> Tensor:
    yes, no = same_type(call.x(1), call.x(2))
    return call.k.map(lambda c, a, b: E.select(c, a, b), call.x(0), yes, no)


# with a state that inference does not use


@op("Dropout", since=7, before=12, kind="elementwise", cost="view", flops=0)
def dropout_by_attribute(call: Call) -> list[Tensor | None]:
    if call.n_outputs > 1:
        raise Unsupported("the mask of Dropout has no defined contents in inference before opset 12")
    return [call.x()]


@op("Dropout", since=12, kind="elementwise", cost="view", flops=0)
def dropout(call: Call) -> list[Tensor | None]:
    training = call.maybe(2)
    known = None if training is None else call.k.values(training)
    if training is not None and (known is None or known[0].const != 0):
        raise Unsupported("Dropout may run in training mode, which draws random numbers")
    x = call.x()
    mask: list[Tensor | None] = [call.k.const(True, "b", x.shape)] if call.n_outputs > 1 else []
    return [x, *mask]


@op("Clip", since=7, before=11, kind="elementwise")
def clip_by_attribute(call: Call) -> Tensor:
    low, high = call.float("min", -FLOAT_MAX), call.float("max", FLOAT_MAX)
    return call.k.map(lambda v: E.op("min", E.op("max", v, number(low, v)), number(high, v)), float_operand(call))


FLOAT_MAX = float.fromhex("0x1.fffffep+127")


@op("Clip", since=11, kind="elementwise")
def clip(call: Call) -> Tensor:
    """Bounds are optional scalars; where the lower one exceeds the upper one, the upper one wins."""
    x = call.x()
    for position, name in ((1, "max"), (2, "min")):
        bound = call.maybe(position)
        if bound is not None:
            x = _bounded(call, name, x, bound)
    return x


def _bounded(call: Call, name: str, x: Tensor, bound: Tensor) -> Tensor:
    same_type(x, bound)
    if bound.rank:
        call.k.require_equal(bound.elements, 1, "a bound of Clip must be a scalar")
    scalar = call.k.reshape(bound, ())
    return call.k.map(lambda v, b: E.op(name, v, b), x, scalar)
