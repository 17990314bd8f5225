"""Which kernel form a step became, for reports.

Input: steps of a schedule. Output: `KernelForm`, or None for plain loops and fused products, whose writer knows it.
Invariant: nothing depends on it; forms and reasons are those of the tables that the choice was made from.
"""

from __future__ import annotations

from typing import Final

from smelt.codegen.cluster import (
    BackToBack,
    BatchedGemm,
    Cluster,
    Extern,
    Pack,
    PackedGemm,
    SegmentCopy,
    Step,
    UnpackedGemm,
    WindowGemm,
)  # fmt: skip
from smelt.codegen.kernel_forms import KernelForm, WindowForm, WindowKernel
from smelt.ir.kernel import Ix, product

from .layout.products import product_form

_PACK: Final = KernelForm("pack", "a right operand that comes at run time is packed into panels before its product")
_FUNCTION: Final = KernelForm("function", "no loop nest states it: a function written in C")
# "lines" of an image in L1 are read where they lie; depthwise and narrow ones are no products of matrices.
_WINDOW_MICRO_KERNELS: Final[dict[WindowForm, str]] = {
    "pointwise": "f32_gemm_epilogue", "im2col": "f32_gemm_epilogue", "lines": "f32_igemm", "nchw": "f32_igemm",
    "square": "f32_gemm_epilogue", "dots": "f32_igemm", "winograd": "f32_gemm",
}  # fmt: skip
_COPY: Final = KernelForm("KV-cache copy", "past and new keys are copied together, unless a GEMV copies what it reads")


def form_of(step: Step) -> KernelForm | None:
    if isinstance(step, BackToBack):
        return None
    match step.work:
        case Pack():
            return _PACK
        case Extern():
            return _FUNCTION
        case SegmentCopy():
            return _COPY
        case PackedGemm() | BatchedGemm() | UnpackedGemm() as work:
            return product_form(work, _rows(step))
        case WindowGemm() as work:
            return _window_form(work)
        case _:
            return None


def _rows(step: Cluster) -> Ix:
    """Of one product: of a batch index, or of all that share the right operand."""
    rows = step.vars[-2:-1] if isinstance(step.work, BatchedGemm) else step.vars[:-1]
    return product(v.extent for v in rows)


def _window_form(work: WindowGemm) -> KernelForm:
    """What was chosen with the layout."""
    made = work.made.definition
    assert isinstance(made, WindowKernel)
    name = f"{made.pool} pool" if made.pool else f"convolution, {made.form}"
    return KernelForm(name, made.reason, _WINDOW_MICRO_KERNELS.get(made.form, ""))
