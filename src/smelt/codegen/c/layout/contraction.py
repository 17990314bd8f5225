"""Contractions: the right operand packed ahead of time where it is a weight.

Input: both operands. Output: a `PackedContraction`, or None. Invariant: float32 matrices only; a transposed weight is
packed from where it is, and never transposed in memory.
"""

from __future__ import annotations

from typing import Final

from smelt.codegen.kernel_forms import PackedContraction
from smelt.ir.kernel import Builder, Tensor

_REASON: Final = "the weights are the same for many calls: they are packed once"


def packed_contraction(k: Builder, a: Tensor, b: Tensor) -> Tensor | None:
    """None where the right operand is no single matrix that is the same for many calls."""
    panels = k.pack(b, "plain") if b.rank == 2 and a.dtype == b.dtype == "f32" else None
    if panels is None:
        return None
    k.require_equal(a.shape[-1], b.shape[-2], "the inner sizes of a product must agree")
    return k.make((*a.shape[:-1], b.shape[-1]), a.dtype, PackedContraction(a, panels, b.shape[-1], _REASON))
