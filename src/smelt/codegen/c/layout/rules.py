"""Ops that a CPU computes otherwise than their declarations state, where the layout of an operand asks for it.

Input: a call of an op. Output: `RULES`, by domain and op. Invariant: a rule gives None where the declaration
serves; what it gives has the shape and the type that the declaration gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from smelt.ir.kernel import Tensor
from smelt.ops.registry import Call

from . import int8_bytes, int8_rules
from .group_normalization import group_norm_of_image, instance_norm_of_groups
from .grouped_queries import cached_attention


def _one(rule: Callable[[Call], Tensor | None]) -> Callable[[Call], Sequence[Tensor | None] | None]:
    def made(call: Call) -> Sequence[Tensor | None] | None:
        found = rule(call)
        return None if found is None else (found,)

    return made


def _either(
    rule: Callable[[Call], Tensor | None] | None, domain: str
) -> Callable[[Call], Sequence[Tensor | None] | None]:
    """A rule, or where it gives nothing, what is a function of bytes."""

    def made(call: Call) -> Sequence[Tensor | None] | None:
        found = None if rule is None else rule(call)
        found = int8_bytes.function_of_bytes(call, domain) if found is None else found
        return None if found is None else (found,)

    return made


_QUANTIZING: Final = ("", "com.microsoft")
_FIRST: Final = {
    "Mul": int8_rules.scaled,
    "Relu": int8_rules.limited,
    "Clip": int8_rules.limited,
    "Add": int8_rules.added,
}
RULES: Final = {
    **{("", op): int8_bytes.moved("") for op in int8_bytes.MOVEMENTS},
    ("", "Concat"): int8_bytes.joined,
    ("com.microsoft", "Gelu"): _either(None, "com.microsoft"),
    **{("", op): _either(_FIRST.get(op), "") for op in (*int8_bytes.FUNCTIONS, *int8_bytes.WITH_A_NUMBER)},
    ("", "GroupNormalization"): _one(group_norm_of_image),
    ("", "InstanceNormalization"): _one(instance_norm_of_groups),
    **{(domain, "DequantizeLinear"): _one(int8_rules.restored) for domain in _QUANTIZING},
    **{(domain, "QuantizeLinear"): _one(int8_rules.quantized) for domain in _QUANTIZING},
    ("", "Conv"): _one(int8_rules.convolution),
    ("", "MatMul"): _one(int8_rules.product),
    ("", "Gemm"): _one(int8_rules.product),
    ("", "MatMulInteger"): _one(int8_rules.integer_product),
    ("", "QLinearConv"): _one(int8_rules.quantized_convolution),
    ("", "ConvInteger"): _one(int8_rules.quantized_convolution),
    ("", "QLinearMatMul"): _one(int8_rules.quantized_product),
    ("com.microsoft", "QGemm"): _one(int8_rules.quantized_gemm),
    ("com.microsoft", "MatMulIntegerToFloat"): _one(int8_rules.product_to_float),
    ("com.microsoft", "DynamicQuantizeMatMul"): _one(int8_rules.dynamic_product),
    ("com.microsoft", "QAttention"): int8_rules.quantized_attention,
    ("com.microsoft", "QLinearAdd"): _one(int8_rules.quantized_sum),
    ("", "MaxPool"): _one(int8_rules.largest),
    ("", "Cast"): _one(int8_rules.cast),
    ("com.microsoft", "GroupQueryAttention"): cached_attention,
}
