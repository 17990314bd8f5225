"""A computation that is repeated a number of times that only the data tell.

Input: a count, values that change from round to round, a function that makes the next ones. Output: their last state.
Invariant: values from outside may be used inside; nothing made inside is used outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from smelt.export.call import Call
from smelt.export.dtypes import BOOL, INT64

Value = ir.Value


def repeated(call: Call, count: Value, state: Sequence[Value], body: Callable[..., Sequence[Value]]) -> list[Value]:
    """`state = body(round, *state)`, `count` (an int64 scalar) times."""
    builder = call.builder

    def inner(name: str, dtype: ir.DataType | None, shape: ir.Shape | None) -> Value:
        assert dtype is not None
        return ir.Value(name=builder.unique(f"{builder.prefix}/{name}"), type=ir.TensorType(dtype), shape=shape)

    scalar = ir.Shape([])
    number, going = inner("round", INT64, scalar), inner("going", BOOL, scalar)
    before = [inner(f"state{k}", value.dtype, value.shape) for k, value in enumerate(state)]
    with builder.subgraph() as scope:
        after = [builder.op("Identity", value) for value in body(number, *before)]
        still = builder.op("Identity", going)
    graph = ir.Graph([number, going, *before], [still, *after], nodes=scope.nodes, name=builder.unique("rounds"))
    result = builder.op("Loop", count, None, *state, outputs=len(state), body=graph)
    values: list[Value] = [result] if len(state) == 1 else [*result]
    for value, first in zip(values, state, strict=True):
        value.type, value.shape = first.type, first.shape
    return values
