"""Activation functions and softmax.

Input: calls. Output: values. Invariant: an activation that ONNX has an op for is that op, so that kernels recognize it.
"""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

from smelt.export.call import Call
from smelt.export.dtypes import is_float
from smelt.export.expressions import arg, cast, number, op
from smelt.export.records import Refused
from smelt.export.registry import converter, declare

Value = ir.Value

declare({
    "aten::relu": op.Relu("self"),
    "aten::sigmoid": op.Sigmoid(cast("self")),
    "aten::special_expit": op.Sigmoid(cast("self")),
    "aten::tanh": op.Tanh(cast("self")),
    "aten::silu": op.Mul("self", op.Sigmoid("self")),
    "aten::mish": op.Mul("self", op.Tanh(op.Softplus("self"))),
    "aten::selu": op.Selu("self"),
    "aten::hardsigmoid": op.HardSigmoid("self", alpha=1 / 6, beta=0.5),
    "aten::hardswish": op.HardSwish("self"),
    "aten::leaky_relu": op.LeakyRelu("self", alpha=arg("negative_slope")),
    "aten::log_sigmoid": op.Neg(op.Softplus(op.Neg("self"))),
    "aten::relu6": op.Clip("self", number(0.0), number(6.0)),
    "aten::celu": op.Celu("self", alpha=arg("alpha")),
})  # fmt: skip


@converter("aten::log_sigmoid_forward")
def log_sigmoid_forward(call: Call, self: Value) -> Any:
    """The result, and exp(-|x|), which torch's backward reads."""
    return call.op("Neg", call.op("Softplus", call.op("Neg", self))), call.op(
        "Exp", call.op("Neg", call.op("Abs", self))
    )


@converter("aten::gelu")
def gelu(call: Call, self: Value, approximate: str = "none") -> Value:
    if call.builder.opset >= 20:
        return call.op("Gelu", self, approximate=approximate)
    half = call.op("Mul", self, call.scalar(0.5))
    if approximate == "none":
        inner = call.op("Erf", call.op("Mul", self, call.scalar(math.sqrt(0.5))))
    else:
        cube = call.op("Mul", call.op("Mul", call.op("Mul", self, self), self), call.scalar(0.044715))
        inner = call.op("Tanh", call.op("Mul", call.op("Add", self, cube), call.scalar(math.sqrt(2 / math.pi))))
    return call.op("Mul", half, call.op("Add", inner, call.scalar(1.0)))


@converter("aten::elu")
def elu(call: Call, self: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    if scale == 1 and input_scale == 1:
        return call.op("Elu", self, alpha=float(alpha))
    grown = call.op("Sub", call.op("Exp", call.op("Mul", self, call.scalar(input_scale))), call.scalar(1))
    negative = call.op("Mul", grown, call.scalar(alpha * scale))
    positive = call.op("Mul", self, call.scalar(scale))
    return call.op("Where", call.op("Greater", self, call.scalar(0)), positive, negative)


@converter("aten::softplus")
def softplus(call: Call, self: Value, beta: float = 1, threshold: float = 20) -> Value:
    scaled = call.op("Mul", self, call.scalar(beta)) if beta != 1 else self
    soft = call.op("Softplus", scaled)
    soft = call.op("Div", soft, call.scalar(beta)) if beta != 1 else soft
    return call.op("Where", call.op("Greater", scaled, call.scalar(threshold)), self, soft)


@converter("aten::hardtanh")
def hardtanh(call: Call, self: Value, min_val: Any = -1, max_val: Any = 1) -> Value:
    return call.op("Clip", self, call.scalar(min_val), call.scalar(max_val))


@converter("aten::threshold")
def threshold(call: Call, self: Value, threshold: Any, value: Any) -> Value:
    return call.op("Where", call.op("Greater", self, call.scalar(threshold)), self, call.scalar(value))


@converter("aten::hardshrink")
def hardshrink(call: Call, self: Value, lambd: float = 0.5) -> Value:
    inside = call.op("LessOrEqual", call.op("Abs", self), call.scalar(lambd))
    return call.op("Where", inside, call.scalar(0), self)


@converter("aten::softshrink")
def softshrink(call: Call, self: Value, lambd: float = 0.5) -> Value:
    bound, zero = call.scalar(lambd), call.scalar(0)
    low = call.op("Where", call.op("Less", self, call.op("Neg", bound)), call.op("Add", self, bound), zero)
    result = call.op("Where", call.op("Greater", self, bound), call.op("Sub", self, bound), low)
    return call.op("Where", call.op("IsNaN", self), self, result)


@converter("aten::prelu", "aten::_prelu_kernel")
def prelu(call: Call, self: Value, weight: Value) -> Value:
    rank = call.rank(self)
    if call.rank(weight) == 1 and rank > 2:
        weight = call.reshape(weight, [call.dim(weight, 0), *[1] * (rank - 2)])
    return call.op("PRelu", self, weight)


@converter("aten::glu")
def glu(call: Call, self: Value, dim: int = -1) -> Value:
    left, right = call.op("Split", self, axis=call.axis(self, dim), num_outputs=2, outputs=2)
    return call.op("Mul", left, call.op("Sigmoid", right))


@converter("aten::softmax.int", "aten::_softmax", "aten::special_softmax")
def softmax(call: Call, self: Value, dim: int) -> Value:
    return _normalized(call, "Softmax", call.cast(self), dim)


@converter("aten::_safe_softmax")
def safe_softmax(call: Call, self: Value, dim: int) -> Value:
    """A softmax that is zero where everything is -inf."""
    value = call.cast(self)
    weights = _normalized(call, "Softmax", value, dim)
    if not call.rank(value):
        return weights
    top = call.op("ReduceMax", value, [dim], keepdims=1)
    nothing = call.op("IsInf", top, detect_positive=0)
    return call.op("Where", nothing, call.scalar(0), weights)


@converter("aten::log_softmax.int", "aten::_log_softmax", "aten::special_log_softmax")
def log_softmax(call: Call, self: Value, dim: int) -> Value:
    return _normalized(call, "LogSoftmax", call.cast(self), dim)


def _normalized(call: Call, op_type: str, value: Value, dim: int) -> Value:
    if not is_float(value.dtype):
        raise Refused(f"{op_type} of integers")
    if call.rank(value):
        return call.op(op_type, value, axis=dim)
    return call.op("Squeeze", call.op(op_type, call.op("Unsqueeze", value, [0]), axis=0), [0])
