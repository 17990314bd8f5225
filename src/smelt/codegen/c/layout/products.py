"""Which kernel a matrix product is: the table of its forms, and of those of two fused products.

Input: what the scheduler has made of a product. Output: `KernelForm`. Invariant: the first form of a table that fits is
the one whose code is written; the conditions that the code depends on are asked here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from smelt.codegen.cluster import BatchedGemm, Matrix, PackedGemm, UnpackedGemm
from smelt.codegen.kernel_forms import KernelForm, PackedContraction
from smelt.codegen.shared_panels import GEMV_ROWS
from smelt.ir.kernel import Ix

Right = Literal["constant", "shared", "batched"]


@dataclass(frozen=True)
class ProductCase:
    """A product of `rows`. Its `right` operand is a constant, or comes at run time: one matrix that all rows share, or
    one for each batch index. `contiguous`: its rows or its columns lie side by side."""

    right: Right
    rows: Ix
    contiguous: bool


@dataclass(frozen=True)
class ProductForm:
    name: str
    reason: str
    fits: Callable[[ProductCase], bool]

    @property
    def micro_kernels(self) -> str:
        return "f32_gemv" if self.name == "GEMV" else "f32_gemm"


def reads_unpacked(left: Matrix, right: Matrix) -> bool:
    """Whether a GEMV can read both operands as they lie."""
    return left.across.const == 1 and 1 in (right.down.const, right.across.const)


def _is_gemv(case: ProductCase) -> bool:
    rows = case.rows.const
    return case.right != "constant" and case.contiguous and rows is not None and rows <= GEMV_ROWS


def _may_be_gemv(case: ProductCase) -> bool:
    return case.right != "constant" and case.contiguous and case.rows.const is None


AHEAD: Final = ProductForm(
    "GEMM, packed ahead of time",
    "the weights are the same for many calls: they are packed once",
    lambda case: case.right == "constant",
)
FORMS: Final = (
    AHEAD,
    ProductForm("GEMV", f"at most {GEMV_ROWS} rows and a run-time matrix: it is read once, unpacked", _is_gemv),
    ProductForm(
        f"GEMV up to {GEMV_ROWS} rows, unpacked GEMM beyond",
        "rows are known at run time: few read the shared matrix once, unpacked; for more, tasks pack what they use",
        lambda case: case.right == "shared" and _may_be_gemv(case),
    ),
    ProductForm(
        f"GEMV up to {GEMV_ROWS} rows, GEMM packed at run time beyond",
        "rows are known at run time: few read the matrix of their batch index unpacked, it is packed once for more",
        _may_be_gemv,
    ),
    ProductForm(
        "GEMM, unpacked",
        "all rows share a matrix that comes at run time: tasks pack what they use",
        lambda case: case.right == "shared",
    ),
    ProductForm(
        "GEMM, packed at run time", "batches have matrices of their own, which come at run time", lambda _: True
    ),
)

FUSED_MLP: Final = KernelForm(
    "fused MLP",
    "the panels of both products fit L2 together: the hidden layer stays in the task",
    "f32_gemm",
)
ONLINE_SOFTMAX: Final = KernelForm(
    "attention, online softmax",
    "a softmax between two products: blocks of a long row's columns are rescaled by the running maximum",
    "f32_gemm",
)
BACK_TO_BACK: Final = KernelForm(
    "back-to-back GEMM", "the second product reads the rows of the first in the task that makes them", "f32_gemm"
)


def product_form(work: PackedGemm | BatchedGemm | UnpackedGemm, rows: Ix) -> KernelForm:
    """By the first form that fits; the last one fits all."""
    case = _case(work, rows)
    form = next(form for form in FORMS if form.fits(case))
    definition = work.made.definition
    if not isinstance(definition, PackedContraction):
        return KernelForm(form.name, form.reason, form.micro_kernels)
    micro_kernels = "bf16bf16f32_gemm" if definition.narrow == "BF16" else form.micro_kernels
    return KernelForm(form.name, definition.reason or form.reason, micro_kernels)


def _case(work: PackedGemm | BatchedGemm | UnpackedGemm, rows: Ix) -> ProductCase:
    match work:
        case PackedGemm():
            return ProductCase("constant", rows, True)
        case UnpackedGemm():
            return ProductCase("shared", rows, reads_unpacked(work.left, work.right))
        case BatchedGemm():
            return ProductCase("batched", rows, work.unpacked is not None)
