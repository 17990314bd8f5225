"""Products of 8-bit integers: MatMulInteger.

Input: operands of the ops. Output: the product with what follows it, as a function written in C (`int8_unit.h`).
Invariant: sums are exact modulo 2^32, for any zero points, on every CPU. The order of operands and numbers is that of
the enums in the header; a backend may pack the right operand, and says so in the number `PACKED`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from smelt.ir.kernel import Function, Ix, Tensor, Unsupported, ix, product
from smelt.ir.kernel.tensor import Arrays

from .registry import Call, op
from .work import matmul_work

Array = np.ndarray[Any, Any]
UNIT: Final = "#include <smelt/int8/int8_unit.h>\n"
MICROSOFT: Final = "com.microsoft"
BYTES: Final = ("u8", "i8")
NAME: Final = "smelt_int8_product"
ROWS, DEPTH, COLUMNS, PACKED = 0, 1, 2, 5  # places among the numbers
RESULTS: Final = {"i32": 0, "f32": 1, "u8": 2, "i8": 3}
_PER_ROW: Final = "a zero point or scale of a product's rows"
_PER_COLUMN: Final = "a zero point, scale or bias of a product's columns"
_ONE: Final = (ix(1), "a zero point or scale of a result")


@dataclass(frozen=True)
class _Operands:
    """Places of the operands of a node, and the type of its result."""

    a: int
    b: int
    a_zero: int
    b_zero: int
    result: str
    a_scale: int = -1
    b_scale: int = -1
    bias: int = -1
    y_scale: int = -1
    y_zero: int = -1


class _Product:
    """One product being lowered."""

    def __init__(self, call: Call, places: _Operands) -> None:
        self.call, self.places = call, places
        self.a, self.b = call.x(places.a), call.x(places.b)
        if self.a.dtype not in BYTES or self.b.dtype not in BYTES:
            raise Unsupported(f"an integer product of {self.a.dtype} and {self.b.dtype}")
        if self.a.rank < 2 or self.b.rank != 2:
            raise Unsupported("an integer product of other than rows and one matrix")
        self.rows, self.depth = product(self.a.shape[:-1]), self.a.shape[-1]
        self.columns = self.b.shape[1]
        call.k.require_equal(self.b.shape[0], self.depth, "the inner sizes of a product must agree")

    def lower(self) -> Tensor:
        parameters = self._parameters()
        function = Function(
            name=NAME,
            text=UNIT,
            operands=(self.a, self.b, *parameters),
            results=(((*self.a.shape[:-1], self.columns), self.places.result),),
            numbers=self._numbers(parameters),
            factors=(),
            scratch_bytes=ix(0),
            flops=self.rows * self.depth * self.columns * 2,
            reference=reference,
        )
        return self.call.k.function(function)[0]

    def _parameters(self) -> list[Tensor | None]:
        """Zero points, scales and bias, in the order of the function's operands."""
        at, rows, columns = self.places, (self.rows, _PER_ROW), (self.columns, _PER_COLUMN)
        wanted = (
            (at.a_zero, self.a.dtype, rows), (at.b_zero, self.b.dtype, columns), (at.a_scale, "f32", rows),
            (at.b_scale, "f32", columns), (at.bias, "f32", columns), (at.y_scale, "f32", _ONE),
            (at.y_zero, at.result, _ONE),
        )  # fmt: skip
        return [self._given(place, dtype, *sizes) for place, dtype, sizes in wanted]

    def _numbers(self, parameters: Sequence[Tensor | None]) -> tuple[Ix, ...]:
        signed = [int(x.dtype == "i8") for x in (self.a, self.b)]
        counts = [ix(1) if found is None else found.elements for found in parameters[:5]]
        sizes = (self.rows, self.depth, self.columns, *signed, 0, RESULTS[self.places.result])
        return (*(ix(n) for n in sizes), *counts)

    def _given(self, place: int, dtype: str, size: Ix, what: str) -> Tensor | None:
        """An operand of one element, or of as many as there are rows or columns."""
        found = self.call.maybe(place) if place >= 0 else None
        if found is None:
            return None
        if found.dtype != dtype:
            raise Unsupported(f"{what} of type {found.dtype}")
        if found.elements.const == 1:
            return found
        if size is self.rows and self.a.rank > 2 and found.rank < 2:
            raise Unsupported(f"{what} that every matrix of a stack shares")
        missing = (found.elements - 1) * (found.elements - size)  # a free size may be 1 at run time
        self.call.k.require_equal(missing, 0, f"{what} must be one, or one for each")
        return found


def reference(arrays: Arrays, numbers: Sequence[int], _: Sequence[float]) -> tuple[Array, ...]:
    """By numpy in int64, from the same operands."""
    a, b, a_zero, b_zero, a_scale, b_scale, bias, y_scale, y_zero = arrays
    assert a is not None and b is not None
    rows = None if a_zero is None else a_zero.astype(np.int64).reshape(-1, 1)
    matrix = b.astype(np.int64) - (0 if b_zero is None else b_zero.astype(np.int64).reshape(1, -1))
    left = a.astype(np.int64).reshape(numbers[0], numbers[1]) - (0 if rows is None else rows)
    sums = (left @ matrix).reshape(*a.shape[:-1], numbers[2])
    if numbers[6] == RESULTS["i32"]:
        return (sums.astype(np.int32),)
    scaled = sums * (_number(a_scale, (-1, 1)) * _number(b_scale, (1, -1)))
    if numbers[6] == RESULTS["f32"]:
        return (scaled + (0 if bias is None else bias.reshape(-1)),)
    signed = numbers[6] == RESULTS["i8"]
    quantized = np.rint(
        scaled / _number(y_scale, ()) + (0 if y_zero is None else y_zero.astype(np.float64).reshape(()))
    )
    low, high = (-128, 127) if signed else (0, 255)
    return (np.clip(quantized, low, high).astype(np.int8 if signed else np.uint8),)


def _number(scale: Array | None, shape: tuple[int, ...]) -> Array:
    return np.ones(()) if scale is None else scale.astype(np.float64).reshape(shape)


@op("MatMulInteger", since=10, kind="function", cost="heavy", work=matmul_work)
def matmul_integer(call: Call) -> Tensor:
    return _Product(call, _Operands(0, 1, 2, 3, "i32")).lower()
