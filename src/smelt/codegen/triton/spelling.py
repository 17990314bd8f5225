"""Triton's spelling of types, constants and scalar operations. No string of a model is ever spelled here.

Input: dtypes, numbers, operations of `ir/kernel/expr.py` with the names of their operands. Output: Python text, and the
device functions that it calls. Invariant: what has no spelling here is `Unsupported`, never a guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from smelt.base.dtype import BY_NAME
from smelt.ir.kernel import Unsupported
from smelt.ir.kernel import expr as E

TYPE: Final = {
    "f32": "tl.float32", "f64": "tl.float64", "f16": "tl.float16", "bf16": "tl.bfloat16",
    "i8": "tl.int8", "i16": "tl.int16", "i32": "tl.int32", "i64": "tl.int64",
    "u8": "tl.uint8", "u16": "tl.uint16", "u32": "tl.uint32", "u64": "tl.uint64", "b": "tl.int1",
}  # fmt: skip
POINTER: Final = {
    "f32": "*fp32", "f64": "*fp64", "f16": "*fp16", "bf16": "*bf16", "i8": "*i8", "i16": "*i16", "i32": "*i32",
    "i64": "*i64", "u8": "*u8", "u16": "*u16", "u32": "*u32", "u64": "*u64", "b": "*u8",
}  # fmt: skip

_INFIX: Final = {
    "add": "+", "sub": "-", "mul": "*", "band": "&", "bor": "|", "bxor": "^", "and": "&", "or": "|", "xor": "^",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_FLOAT_FUNCTIONS: Final = {
    "div": "divide", "mod": "float_modulo", "pow": "power", "sqrt": "square_root", "round": "round_half_even",
    "trunc": "truncate", "sign": "sign", "exp": "exponential", "log": "logarithm", "log1p": "log_of_1_plus",
    "expm1": "exponential_minus_1", "tanh": "tangent_hyperbolic", "sigmoid": "sigmoid", "softplus": "softplus",
    "gelu": "gelu", "tan": "tangent", "asin": "arc_sine", "acos": "arc_cosine", "atan": "arc_tangent",
    "sinh": "sine_hyperbolic", "cosh": "cosine_hyperbolic", "asinh": "area_sine", "acosh": "area_cosine",
    "atanh": "area_tangent",
}  # fmt: skip
_WHOLE_FUNCTIONS: Final = {"div": "whole_divide", "mod": "whole_modulo", "fmod": "whole_remainder"}
_LANGUAGE: Final = {"erf": "erf", "sin": "sin", "cos": "cos", "floor": "floor", "ceil": "ceil", "abs": "abs"}


def constant(value: float | int | bool, dtype: str) -> str:
    """A scalar of the type; a plain number would be of the type of whatever it meets."""
    if dtype == "b":
        return f"tl.full((), {int(bool(value))}, tl.int1)"
    text = _float(float(value)) if BY_NAME[dtype].kind == "float" else str(int(value))
    return f"tl.full((), {text}, {TYPE[dtype]})"


def _float(value: float) -> str:
    if math.isnan(value):
        return 'float("nan")'
    if math.isinf(value):
        return 'float("inf")' if value > 0 else 'float("-inf")'
    return repr(value)


def number(dtype: str, value: float | int) -> str:
    """The same as bare text, for places that give it its type."""
    return _float(float(value)) if BY_NAME[dtype].kind == "float" else str(int(value))


def operation(name: str, dtype: str, operand: str, args: Sequence[str]) -> tuple[str, str | None]:
    """The text of an operation on operands of type `operand`, and the device function that it calls."""
    if operand == "b":
        return _truth(name, dtype, args), None
    if name == "cvt":
        return f"({args[0]} != 0)" if dtype == "b" else f"{args[0]}.to({TYPE[dtype]})", None
    if name == "sel":
        return f"tl.where({', '.join(args)})", None
    if name == "rounded":
        return args[0], None  # nothing is fused: see `binaries.OPTIONS`
    if name in _INFIX:
        return _wrapped(f"({args[0]} {_INFIX[name]} {args[1]})", name, dtype), None
    if operand in E.FLOATS:
        return _on_floats(name, args)
    return _on_whole_numbers(name, operand, args)


def _wrapped(text: str, name: str, dtype: str) -> str:
    """Sums of types below 32 bits wrap in their own type."""
    narrow = dtype in E.INTS and BY_NAME[dtype].bits < 32 and name in ("add", "sub", "mul")
    return f"{text}.to({TYPE[dtype]})" if narrow else text


def _truth(name: str, dtype: str, args: Sequence[str]) -> str:
    if name == "cvt":
        return f"{args[0]}.to({TYPE[dtype]})"
    if name == "not":
        return f"({args[0]} == 0)"
    if name == "sel":
        return f"tl.where({', '.join(args)})"
    symbol = {"min": "&", "max": "|", "mul": "&", "eq": "==", "ne": "!="}.get(name) or _INFIX.get(name)
    if symbol is None or name in ("lt", "le", "gt", "ge", "add", "sub"):
        raise Unsupported(f"{name} of truth values has no Triton spelling")
    return f"({args[0]} {symbol} {args[1]})"


def _on_floats(name: str, args: Sequence[str]) -> tuple[str, str | None]:
    a = args[0]
    simple: dict[str, Callable[[], str]] = {
        "neg": lambda: f"(-{a})",
        "recip": lambda: f"divide(tl.zeros_like({a}) + 1, {a})",
        "min": lambda: f"tl.minimum({a}, {args[1]}, propagate_nan=tl.PropagateNan.ALL)",
        "max": lambda: f"tl.maximum({a}, {args[1]}, propagate_nan=tl.PropagateNan.ALL)",
        "fmod": lambda: f"({a} % {args[1]})",
        "isnan": lambda: f"({a} != {a})",
        "isinf": lambda: f'(tl.abs({a}) == float("inf"))',
        "isinf_pos": lambda: f'({a} == float("inf"))',
        "isinf_neg": lambda: f'({a} == float("-inf"))',
    }
    if name in simple:
        return simple[name](), "divide" if name == "recip" else None
    if name in _LANGUAGE:
        return f"tl.{_LANGUAGE[name]}({a})", None
    if name in _FLOAT_FUNCTIONS:
        return f"{_FLOAT_FUNCTIONS[name]}({', '.join(args)})", _FLOAT_FUNCTIONS[name]
    raise Unsupported(f"{name} has no Triton spelling")


def _on_whole_numbers(name: str, dtype: str, args: Sequence[str]) -> tuple[str, str | None]:
    a, kind, width = args[0], TYPE[dtype], BY_NAME[dtype].bits
    simple: dict[str, Callable[[], str]] = {
        "neg": lambda: f"(tl.zeros_like({a}) - {a}).to({kind})",
        "abs": lambda: a if dtype in E.UNSIGNED else f"tl.abs({a})",
        "min": lambda: f"tl.minimum({a}, {args[1]})",
        "max": lambda: f"tl.maximum({a}, {args[1]})",
        "bnot": lambda: f"(~{a})",
        "floor": lambda: a, "ceil": lambda: a, "round": lambda: a, "trunc": lambda: a,
        "sign": lambda: f"({a} > 0).to({kind})" if dtype in E.UNSIGNED else f"sign({a})",
    }  # fmt: skip
    if name in simple:
        return simple[name](), "sign" if name == "sign" and dtype not in E.UNSIGNED else None
    if name in ("shl", "shr"):
        function = "shift_left" if name == "shl" else "shift_right"
        return f"{function}({a}, {args[1]}, {width})", function
    if name == "pow":
        return f"whole_power({a}, {args[1]}, {width})", "whole_power"
    if name in ("mod", "fmod") and dtype in E.UNSIGNED:
        return f"unsigned_modulo({a}, {args[1]})", "unsigned_modulo"
    if name in _WHOLE_FUNCTIONS:
        return f"{_WHOLE_FUNCTIONS[name]}({a}, {args[1]})", _WHOLE_FUNCTIONS[name]
    raise Unsupported(f"{name} of {dtype} has no Triton spelling")
