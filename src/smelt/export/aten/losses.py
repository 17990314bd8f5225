"""Losses over classes.

Input: calls. Output: values. Invariant: a target that is to be ignored counts neither in the loss nor in the total
weight, whatever class it names.
"""

from __future__ import annotations

import onnx_ir as ir

from smelt.export.call import Call
from smelt.export.dtypes import INT64
from smelt.export.registry import converter

Value = ir.Value
_NONE, _MEAN = 0, 1


@converter("aten::nll_loss_forward", "aten::nll_loss2d_forward")
def nll_loss_forward(
    call: Call, self: Value, target: Value, weight: Value | None, reduction: int, ignore_index: int
) -> tuple[Value, Value]:
    """The loss and the total weight of the targets that count, which the gradient divides by."""
    axis = min(call.rank(self) - 1, 1)
    valid = call.op("Not", call.op("Equal", target, call.scalar(ignore_index, INT64)))
    place = call.op("Where", valid, target, call.scalar(0, INT64))
    picked = call.op("GatherElements", self, call.op("Unsqueeze", place, [axis]), axis=axis)
    ones = call.cast(valid)
    weights = ones if weight is None else call.op("Mul", call.op("Gather", weight, place), ones)
    losses = call.op("Neg", call.op("Mul", call.op("Squeeze", picked, [axis]), weights))
    losses = call.op("Where", valid, losses, call.scalar(0.0))
    if reduction == _NONE and call.rank(self) > 1:
        return losses, call.scalar(0.0)
    total = call.op("ReduceSum", weights, keepdims=0)
    whole = call.op("ReduceSum", losses, keepdims=0)
    return (call.op("Div", whole, total) if reduction == _MEAN else whole), total
