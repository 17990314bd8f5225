"""Ops that a CPU computes otherwise than their declarations state, where the layout of an operand asks for it.

Input: a call of an op. Output: `RULES`, by domain and op. Invariant: a rule gives None where the declaration
serves; what it gives has the shape and the type that the declaration gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from smelt.ir.kernel import Tensor
from smelt.ops.registry import Call

from .group_normalization import group_norm_of_image, instance_norm_of_groups


def _one(rule: Callable[[Call], Tensor | None]) -> Callable[[Call], Sequence[Tensor | None] | None]:
    def made(call: Call) -> Sequence[Tensor | None] | None:
        found = rule(call)
        return None if found is None else (found,)

    return made


RULES: Final = {
    ("", "GroupNormalization"): _one(group_norm_of_image),
    ("", "InstanceNormalization"): _one(instance_norm_of_groups),
}
