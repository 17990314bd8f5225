"""Contractions: the right operand packed ahead of time where it is a weight.

Input: both operands. Output: a `PackedContraction`, or None. Invariant: float32 matrices only, stored in that type or
in one of 16 bits; a transposed weight is packed from where it is, and never transposed in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from smelt.codegen.kernel_forms import PackedContraction
from smelt.ir.kernel import Tensor

from .half_panels import REASON, half_panels

if TYPE_CHECKING:
    from .builder import CpuBuilder

_REASON: Final = "the weights are the same for many calls: they are packed once"


def packed_contraction(k: CpuBuilder, a: Tensor, b: Tensor) -> Tensor | None:
    """None where the right operand is no single matrix that is the same for many calls."""
    if b.rank != 2 or not a.dtype == b.dtype == "f32":
        return None
    half = half_panels(k, a, b, "plain")
    panels = k.pack(b, "plain") if half is None else half.panels
    if panels is None:
        return None
    k.require_equal(a.shape[-1], b.shape[-2], "the inner sizes of a product must agree")
    reason, narrow = (_REASON, "") if half is None else (REASON[half.narrow], half.narrow)
    made = PackedContraction(a, panels, b.shape[-1], reason, narrow)
    return k.make((*a.shape[:-1], b.shape[-1]), a.dtype, made)
