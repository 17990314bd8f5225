"""Random numbers.

Input: calls of random ops. Output: values drawn by ONNX Runtime's generator. Invariant: the distribution is torch's,
the numbers are not: ONNX Runtime seeds its own generator (`onnxruntime.set_seed`); `torch.manual_seed` does not reach
it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from smelt.export.call import Call
from smelt.export.dtypes import BOOL, DOUBLE, FLOAT, INT64, is_float
from smelt.export.records import Refused
from smelt.export.registry import converter
from smelt.export.sizes import Dim

Value = ir.Value


def _drawn(call: Call, op_type: str, dims: Sequence[Dim], dtype: ir.DataType) -> Value:
    work = DOUBLE if dtype == DOUBLE else FLOAT
    like = call.filled(dims, 0.0, work)
    return call.cast(call.op(op_type, like, dtype=work, shape=like.shape), dtype)


def uniform(call: Call, dims: Sequence[Dim], dtype: ir.DataType | None = None) -> Value:
    """In [0, 1)."""
    return _drawn(call, "RandomUniformLike", dims, dtype or call.dtype)


def normal(call: Call, dims: Sequence[Dim], dtype: ir.DataType | None = None) -> Value:
    return _drawn(call, "RandomNormalLike", dims, dtype or call.dtype)


def _logarithm(call: Call, dims: Sequence[Dim]) -> Value:
    """The logarithm of a number in (0, 1]."""
    return call.op("Log", call.op("Sub", call.scalar(1.0, DOUBLE), uniform(call, dims, DOUBLE)))


@converter("aten::rand", "aten::rand_like")
def rand(call: Call) -> Value:
    return uniform(call, call.dims)


@converter("aten::randn", "aten::randn_like")
def randn(call: Call) -> Value:
    return normal(call, call.dims)


@converter(
    "aten::randint", "aten::randint.low", "aten::randint_like", "aten::randint_like.low_dtype",
    "aten::randint_like.Tensor",
)  # fmt: skip
def randint(call: Call) -> Value:
    low, high = call.arguments.get("low", 0), call.arguments["high"]
    if isinstance(high, ir.Value):
        high = call.cast(high, DOUBLE)
    width = call.op("Sub", call.scalar(high, DOUBLE), call.scalar(low, DOUBLE))
    whole = call.op("Floor", call.op("Mul", uniform(call, call.dims, DOUBLE), width))
    return call.cast(call.op("Add", whole, call.scalar(low, DOUBLE)))


@converter("aten::randperm")
def randperm(call: Call, n: Any) -> Value:
    keys = uniform(call, [n], FLOAT)
    return call.cast(call.op("TopK", keys, call.vector([n]), axis=0, outputs=2)[1])


@converter("aten::uniform")
def uniform_between(call: Call, self: Value, from_: float = 0.0, to: float = 1.0) -> Value:
    return call.op("Add", call.op("Mul", uniform(call, call.dims), call.scalar(to - from_)), call.scalar(from_))


@converter("aten::normal_functional")
def normal_functional(call: Call, self: Value, mean: float = 0.0, std: float = 1.0) -> Value:
    return _scaled_normal(call, mean, std)


@converter(
    "aten::normal.Tensor_float", "aten::normal.float_Tensor", "aten::normal.Tensor_Tensor", "aten::normal.float_float",
)  # fmt: skip
def normal_of(call: Call) -> Value:
    return _scaled_normal(call, call.arguments.get("mean", 0.0), call.arguments.get("std", 1.0))


def _scaled_normal(call: Call, mean: Any, std: Any) -> Value:
    return call.op("Add", call.op("Mul", normal(call, call.dims), call.cast(std)), call.cast(mean))


@converter("aten::log_normal")
def log_normal(call: Call, self: Value, mean: float = 1.0, std: float = 2.0) -> Value:
    return call.op("Exp", _scaled_normal(call, mean, std))


@converter("aten::exponential")
def exponential(call: Call, self: Value, lambd: float = 1.0) -> Value:
    return call.cast(call.op("Div", _logarithm(call, call.dims), call.scalar(-lambd, DOUBLE)))


@converter("aten::geometric")
def geometric(call: Call, self: Value, p: float) -> Value:
    trials = call.op("Div", _logarithm(call, call.dims), call.scalar(math.log1p(-p) if p < 1 else -math.inf, DOUBLE))
    return call.cast(call.op("Max", call.op("Ceil", trials), call.scalar(1.0, DOUBLE)))


@converter("aten::cauchy")
def cauchy(call: Call, self: Value, median: float = 0.0, sigma: float = 1.0) -> Value:
    angle = call.op("Mul", call.op("Sub", uniform(call, call.dims), call.scalar(0.5)), call.scalar(math.pi))
    return call.op("Add", call.op("Mul", call.op("Tan", angle), call.scalar(sigma)), call.scalar(median))


@converter("aten::bernoulli", "aten::bernoulli.p", "aten::bernoulli.Tensor")
def bernoulli(call: Call) -> Value:
    p = call.arguments.get("p")
    p = call.arguments["self"] if p is None else p
    work = p.dtype if isinstance(p, ir.Value) and is_float(p.dtype) else FLOAT
    return call.cast(call.op("Less", uniform(call, call.dims, work), call.cast(p, work)))


@converter("aten::native_dropout")
def native_dropout(call: Call, input: Value, p: float, train: bool | None) -> list[Value]:
    if train is False or p == 0:
        return [input, call.filled(call.dims, True, BOOL)]
    if p == 1:
        return [call.op("Mul", input, call.scalar(0.0)), call.filled(call.dims, False, BOOL)]
    kept = call.op("GreaterOrEqual", uniform(call, call.dims, FLOAT), call.scalar(p, FLOAT))
    scaled = call.op("Mul", input, call.scalar(1.0 / (1.0 - p)))
    return [call.op("Mul", scaled, call.cast(kept)), kept]


@converter("aten::multinomial")
def multinomial(call: Call, self: Value, num_samples: Any, replacement: bool = False) -> Value:
    if not isinstance(num_samples, int):
        raise Refused("the number of samples is not known")
    sizes = call.all_dims(self)
    if not replacement or num_samples == 1:
        # The largest of log p - log(-log u) are a sample without replacement.
        noise = call.op("Log", call.op("Neg", _logarithm(call, sizes)))
        keys = call.op("Sub", call.op("Log", call.cast(self, DOUBLE)), noise)
        return call.op("TopK", keys, [num_samples], axis=-1, outputs=2)[1]
    heights = call.op("CumSum", call.cast(self, DOUBLE), call.constant(len(sizes) - 1, INT64))
    top = call.op("ReduceMax", heights, [-1], keepdims=1)
    draws = call.op("Mul", uniform(call, [*sizes[:-1], num_samples], DOUBLE), top)
    above = call.op("GreaterOrEqual", call.op("Unsqueeze", draws, [-1]), call.op("Unsqueeze", heights, [-2]))
    return call.op("ReduceSum", call.cast(above, INT64), [-1], keepdims=0)


@converter("aten::rrelu_with_noise_functional")
def rrelu(
    call: Call, self: Value, noise: Value, lower: float = 0.125, upper: float = 1 / 3, training: bool = False
) -> list[Value]:
    positive = call.op("Greater", self, call.scalar(0.0))
    if not training:
        return [call.op("Where", positive, self, call.op("Mul", self, call.scalar((lower + upper) / 2))), noise]
    slope = call.op("Add", call.op("Mul", uniform(call, call.dims), call.scalar(upper - lower)), call.scalar(lower))
    used = call.op("Where", positive, call.scalar(1.0), slope)
    return [call.op("Mul", self, used), used]
