"""Definitions of tensors that a backend has given a layout: what the scheduler places as kernels.

Input: nothing. Output: records, of which each stands for a definition of the tensor language. Invariant: a form says in
which layout its operands are; what is computed is what the definition in its place stated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from smelt.ir.kernel import Geometry, Ix, Lowered, Tensor

# How a product multiplies constant weights of 16 bits: by bfloat16 rows, or widened exactly. "" are float32 weights.
Narrow = Literal["", "BF16", "F16", "WIDENED"]
WindowForm = Literal["pointwise", "depthwise", "im2col", "lines", "dots", "narrow", "nchw", "square", "winograd"]


@dataclass(frozen=True)
class KernelForm:
    """Which form of a kernel was chosen, and why, for reports; `micro_kernels` is the family of its micro-kernels."""

    name: str
    reason: str
    micro_kernels: str = ""


@dataclass(frozen=True, eq=False)
class PackedContraction(Lowered):
    """a[..., M, K] @ b, with b packed in panels of 16 columns ahead of time (`b` is a stored buffer of panels)."""

    a: Tensor
    b: Tensor
    columns: Ix
    reason: str = ""
    narrow: Narrow = ""


@dataclass(frozen=True, eq=False)
class WindowKernel(Lowered):
    """What slides over an image a[N, *sizes, C] in NHWC, and gives [N, *out, columns].

    | form | weights b |
    |---|---|
    | pointwise, lines, im2col | panels [group, panel, tap * channel, 16] |
    | square | the same, for 3 x 3 taps: directly or by Winograd's transform, chosen when sizes are known |
    | nchw | panels [panel, channel * tap, 16]; the image is a[N, C, *sizes]. Pools: none, the result is in NCHW too |
    | winograd | transformed filters [24, panel, channel, 16] |
    | dots | few columns: [group, panel of a line's elements, column, 16] |
    | narrow | groups of 2, 4, 8 or 16 channels and columns: [panel, tap * channel, 16] |
    | depthwise | one filter for each channel [panel, tap, 16]; or none: a `pool`, max, mean or sum |

    `counted` is true for a mean over padding too; `reason` says why the form was taken."""

    form: WindowForm
    a: Tensor
    b: Tensor | None
    geometry: Geometry
    groups: int = 1
    pool: str = ""
    counted: bool = False
    reason: str = ""
    narrow: Narrow = ""

    @property
    def nchw(self) -> bool:
        return self.form == "nchw"

    @property
    def by_channel(self) -> bool:
        """A pool in NCHW: each channel is an image by itself, and the columns are those of its result."""
        return self.nchw and self.pool != ""
