"""Windows of signal processing, and determinants: HannWindow, HammingWindow, BlackmanWindow, Det.

Input: a size, or square matrices. Output: cosines of the position; a function in C for determinants. Invariant: the
coefficients are those of the ONNX specification.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from smelt.ir.kernel import Expr, Function, Tensor, Unsupported, fn, product
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.tensor import Arrays
from smelt.ops.functions import given, unit
from smelt.ops.registry import Call, op

_FLOAT, _DOUBLE = 1, 11
_COEFFICIENTS = {
    "HannWindow": (0.5, -0.5, 0.0),
    "HammingWindow": (25 / 46, -21 / 46, 0.0),
    "BlackmanWindow": (0.42, -0.5, 0.08),
}


@op("HannWindow", "HammingWindow", "BlackmanWindow", since=17, kind="shape", cost="cheap")
def window(call: Call) -> Tensor:
    found = call.values(0)
    kind = {_FLOAT: "f32", _DOUBLE: "f64"}.get(call.int("output_datatype", _FLOAT))
    if found is None or len(found) != 1 or kind is None:
        raise Unsupported("a window of unknown size, or of another type than float32 and float64")
    size = found[0]
    revolutions = size if call.int("periodic", 1) else size - 1
    constant, first, second = _COEFFICIENTS[call.op]

    def at(where: Expr) -> Expr:
        angle = E.op("div", E.op("mul", where, E.const(2 * math.pi, "f64")), E.cast(E.index(revolutions), "f64"))
        value = E.op("add", E.const(constant, "f64"), E.op("mul", E.const(first, "f64"), E.op("cos", angle)))
        if second:
            double = E.op("cos", E.op("mul", angle, E.const(2.0, "f64")))
            value = E.op("add", value, E.op("mul", E.const(second, "f64"), double))
        return E.cast(value, kind)

    if size.const is None:
        call.k.require_equal(fn("lt", size, 0), 0, "a window's size must not be negative")
    return call.k.map(at, call.k.iota((size,), 0, "f64"), dtype=kind)


@op("Det", since=11, kind="function")
def determinant(call: Call) -> Tensor:
    x = call.x()
    if x.rank < 2 or x.dtype not in ("f32", "f64"):
        raise Unsupported("a determinant of other than matrices of floats")
    call.k.require_equal(x.shape[-1], x.shape[-2], "a determinant takes square matrices")
    count, n = product(x.shape[:-2]), x.shape[-1]
    return call.k.function(
        Function(
            name=f"smelt_determinant_{x.dtype}", text=unit("functions/determinant_unit.h", x.dtype), operands=(x,),
            results=((x.shape[:-2], x.dtype),), numbers=(count, n), factors=(), scratch_bytes=x.elements * 8,
            flops=x.elements * n, reference=_determinants,
        )
    )[0]  # fmt: skip


def _determinants(arrays: Arrays, numbers: Sequence[int], factors: Sequence[float]) -> tuple[np.ndarray[Any, Any]]:
    del numbers, factors
    return (np.asarray(np.linalg.det(given(arrays))),)
