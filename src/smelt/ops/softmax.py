"""Softmax and kin. Before opset 13 the input is seen as a matrix split at `axis`; from 13 on one axis is normalized."""

from __future__ import annotations

from smelt.ir.kernel import Tensor
from smelt.ir.kernel import expr as E

from .registry import Call, op


def softmax_over(call: Call, x: Tensor, axes: list[int]) -> Tensor:
    k = call.k
    top = k.reduce("max", x, axes)
    powers = k.map(lambda a, m: E.op("exp", E.op("sub", a, m)), x, top)
    total = k.reduce("sum", powers, axes)
    return k.map(lambda e, t: E.op("div", e, t), powers, total)


@op("Softmax", since=13, kind="normalization")
def softmax(call: Call) -> Tensor:
    x = call.x()
    return softmax_over(call, x, [call.int("axis", -1)])


@op("Softmax", since=1, before=13, kind="normalization")
def softmax_matrix(call: Call) -> Tensor:
    x = call.x()
    axis = call.int("axis", 1) % max(x.rank, 1)
    return softmax_over(call, x, list(range(axis, x.rank)))
