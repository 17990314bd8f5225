"""Declarative converters: nestable expressions of ONNX ops.

Input: `op.Transpose("self")`, `op.ConstantOfShape(op.Shape("self"), value=zero)`. Output: an `Expression`, which the
table evaluates on a call. Invariant: a string operand names an argument of the torch schema and is taken as it is;
`cast("self")` is that argument in the result's type; a number is a constant of the type that the ONNX op asks for.
An attribute may be `arg("dim")`, the value of an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from smelt.export.call import Call
from smelt.export.dtypes import BOOL


@dataclass(frozen=True)
class Expression:
    """An ONNX op over operands; a converter when called with a `Call`."""

    op_type: str
    operands: tuple[Any, ...]
    attributes: tuple[tuple[str, Any], ...] = ()

    def __call__(self, call: Call) -> Any:
        operands = [_operand(call, operand) for operand in self.operands]
        return call.op(self.op_type, *operands, **{name: _value(call, value) for name, value in self.attributes})

    def __str__(self) -> str:
        return f"{self.op_type}({', '.join(map(str, self.operands))})"


@dataclass(frozen=True)
class Computed:
    """An operand or attribute computed from the call."""

    text: str
    of: Callable[[Call], Any]

    def __call__(self, call: Call) -> Any:
        return self.of(call)

    def __str__(self) -> str:
        return self.text


class _Ops:
    """`op.Name(...)` is an expression of the ONNX op `Name`."""

    def __getattr__(self, name: str) -> Callable[..., Expression]:
        return lambda *operands, **attributes: Expression(name, operands, tuple(attributes.items()))


op: Final = _Ops()


def arg(name: str) -> Computed:
    """An argument as it is."""
    return Computed(name, lambda call: call.arguments[name])


def cast(name: str) -> Computed:
    """A tensor or number argument in the type of the result."""
    return Computed(f"cast {name}", lambda call: call.cast(call.arguments[name]))


def boolean(name: str) -> Computed:
    """A tensor argument as bool."""
    return Computed(f"bool {name}", lambda call: call.cast(call.arguments[name], BOOL))


def number(value: float) -> Computed:
    """A 0-d constant of the result's type."""
    return Computed(str(value), lambda call: call.scalar(value))


def promoted(*names: str) -> tuple[Computed, ...]:
    """Arguments in their common type, for ops whose result has another one (comparisons)."""

    def of(index: int) -> Callable[[Call], Any]:
        return lambda call: call.promoted(*(call.arguments[name] for name in names))[index]

    return tuple(Computed(name, of(index)) for index, name in enumerate(names))


zero: Final = Computed("0", lambda call: ir.Tensor(np.zeros(1, call.dtype.numpy()), dtype=call.dtype))
one: Final = Computed("1", lambda call: ir.Tensor(np.ones(1, call.dtype.numpy()), dtype=call.dtype))


def _operand(call: Call, operand: Any) -> Any:
    return call.arguments[operand] if isinstance(operand, str) else _value(call, operand)


def _value(call: Call, value: Any) -> Any:
    return value(call) if isinstance(value, (Expression, Computed)) else value
