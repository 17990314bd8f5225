"""Activations of ONNX Runtime's own domain, and the bias that it fuses into them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from smelt.ir.kernel import Tensor
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.numpy_rules import RULES
from smelt.ops.activations import GELU_CUBE, GELU_SLOPE, SQRT_HALF, gelu_of, swish_of, tanh_gelu_of
from smelt.ops.elementwise import float_operand, same_type
from smelt.ops.registry import Call, op

CONTRIB = "com.microsoft"
Array = npt.NDArray[Any]


def _gelu_reference(x: Array, bias: Array | None = None) -> Array:
    v = x if bias is None else x + bias
    return v * v.dtype.type(0.5) * (1 + RULES["erf"](v * v.dtype.type(SQRT_HALF)))


def _fast_gelu_reference(x: Array, bias: Array | None = None) -> Array:
    v = x if bias is None else x + bias
    one = v.dtype.type
    return one(0.5) * v * (1 + np.tanh(one(GELU_SLOPE) * (v + one(GELU_CUBE) * v * v * v)))


def _quick_gelu_reference(x: Array, alpha: float = 1.702) -> Array:
    return x * RULES["sigmoid"](x.dtype.type(alpha) * x)


def _bias_add_reference(x: Array, bias: Array, skip: Array) -> Array:
    return x + bias + skip


@op("Gelu", domain=CONTRIB, kind="elementwise", cost="heavy", flops=28, reference=_gelu_reference)
def gelu(call: Call) -> Tensor:
    return call.k.map(gelu_of, float_operand(call))


@op("BiasGelu", domain=CONTRIB, kind="elementwise", cost="heavy", flops=29, reference=_gelu_reference)
def bias_gelu(call: Call) -> Tensor:
    x, bias = same_type(float_operand(call), call.x(1))
    return call.k.map(lambda v, b: gelu_of(E.op("add", v, b)), x, bias)


@op("FastGelu", domain=CONTRIB, kind="elementwise", cost="heavy", flops=28, reference=_fast_gelu_reference)
def fast_gelu(call: Call) -> Tensor:
    x, bias = float_operand(call), call.maybe(1)
    if bias is None:
        return call.k.map(tanh_gelu_of, x)
    left, right = same_type(x, bias)
    return call.k.map(lambda v, b: tanh_gelu_of(E.op("add", v, b)), left, right)


@op("QuickGelu", domain=CONTRIB, kind="elementwise", cost="heavy", flops=22, reference=_quick_gelu_reference)
def quick_gelu(call: Call) -> Tensor:
    alpha = call.float("alpha", 1.702)
    return call.k.map(lambda v: swish_of(v, alpha), float_operand(call))


@op("BiasAdd", domain=CONTRIB, kind="elementwise", reference=_bias_add_reference)
def bias_add(call: Call) -> Tensor:
    x, bias, skip = same_type(float_operand(call), call.x(1), call.x(2))
    return call.k.map(lambda v, b, s: E.op("add", E.op("add", v, b), s), x, bias, skip)
