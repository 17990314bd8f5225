"""Which kernel form a step became, for reports.

Input: steps of a schedule. Output: `KernelForm`, or None for plain loops. Invariant: nothing depends on it; what was
chosen where a tensor was given its layout says why itself, what the scheduler chose is told here.
"""

from __future__ import annotations

from typing import Final

from smelt.codegen.cluster import BackToBack, BatchedGemm, Extern, Pack, PackedGemm, Step, UnpackedGemm, WindowGemm
from smelt.codegen.kernel_forms import KernelForm, PackedContraction, WindowKernel
from smelt.ir.kernel import Tensor

_PACK: Final = KernelForm("pack", "a right operand that comes at run time is packed into panels before its product")
_FUNCTION: Final = KernelForm("function", "no loop nest states it: a function written in C")
_BACK_TO_BACK: Final = KernelForm(
    "back-to-back GEMM", "the second product reads the rows of the first in the task that makes them"
)
_UNPACKED: Final = KernelForm(
    "GEMM, unpacked", "all rows share a matrix that comes at run time: tasks pack what they use"
)
_RUN_TIME: Final = KernelForm("GEMM, packed at run time", "batches have matrices of their own, which come at run time")


def form_of(step: Step) -> KernelForm | None:
    if isinstance(step, BackToBack):
        return _BACK_TO_BACK
    match step.work:
        case Pack():
            return _PACK
        case Extern():
            return _FUNCTION
        case UnpackedGemm():
            return _UNPACKED
        case BatchedGemm():
            return _RUN_TIME
        case PackedGemm(made) | WindowGemm(made):
            return _chosen(made)
        case _:
            return None


def _chosen(made: Tensor) -> KernelForm:
    """What was chosen with the layout."""
    definition = made.definition
    if isinstance(definition, PackedContraction):
        return KernelForm("GEMM, packed ahead of time", definition.reason)
    assert isinstance(definition, WindowKernel)
    name = f"{definition.pool} pool" if definition.pool else f"convolution, {definition.form}"
    return KernelForm(name, definition.reason)
