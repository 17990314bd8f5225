"""Which nodes become Triton kernels.

Input: a node and the facts. Output: yes, or no with the reason. Invariant: what is claimed is made of maps, index maps,
reductions, scans, assemblies and attention; other products, windows and functions in C stay with the GPU's own
provider.
"""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from smelt.ir.kernel import (
    Assemble,
    Contraction,
    Convolution,
    Map,
    Pool,
    Reduce,
    Result,
    Scan,
    Stored,
    Tensor,
    Unsupported,
    View,
)
from smelt.ir.records import Claim
from smelt.ops import Facts, lower
from smelt.ops.analysis import OwnRules
from smelt.ops.block_quantized import MICROSOFT
from smelt.ops.user import launcher_rules

from .attention import attention_of
from .block_quantized import block_quantized_product
from .divisions import RULES

_REASONS: Final[dict[type, str]] = {
    Contraction: "a product: the GPU's own provider computes it",
    Convolution: "a convolution: the GPU's own provider computes it",
    Pool: "a pool: the GPU's own provider computes it",
    Result: "a function in C, which runs on the CPU",
}


def own_rules() -> OwnRules:
    """Of this backend, and of kernels that users wrote for it."""
    return {**RULES, (MICROSOFT, "MatMulNBits"): block_quantized_product, **launcher_rules()}


def claim(node: ir.Node, facts: Facts) -> Claim:
    try:
        made = lower(facts, facts.builder(), node, None, own_rules())
    except Unsupported as unsupported:
        return Claim(False, str(unsupported))
    for result in made:
        reason = "" if result is None else _unsupported(result[0])
        if reason:
            return Claim(False, reason)
    return Claim(True)


def _unsupported(root: Tensor) -> str:
    seen: set[int] = set()
    stack = [root]
    while stack:
        tensor = stack.pop()
        if tensor.uid in seen:
            continue
        seen.add(tensor.uid)
        definition = tensor.definition
        one = attention_of(tensor, operands_of)
        if one is not None:
            stack += [one.outer.b, one.inner.a, one.inner.b]
            seen.add(one.scores.uid)
            stack += [t for t in operands_of(tensor) if t is not one.scores]
            continue
        if type(definition) in _REASONS and not _has_device_code(tensor):
            return _REASONS[type(definition)]
        stack += operands_of(tensor)
    return ""


def _has_device_code(tensor: Tensor) -> bool:
    return isinstance(tensor.definition, Result) and tensor.definition.function.device is not None


def operands_of(tensor: Tensor) -> list[Tensor]:
    match tensor.definition:
        case Stored():
            return []
        case Map(args=args):
            return list(args)
        case View(src=src):
            return [] if src is None else [src]
        case Reduce(src=src) | Scan(src=src):
            return [src]
        case Assemble(pieces=pieces):
            return [piece for _, piece in pieces]
        case Result(function=function):
            return [operand for operand in function.operands if operand is not None]
        case Contraction(a=a, b=b):
            return [a, b]
        case _:
            return []
