"""Which kernel a pool is.

Input: the operands of a pool in the model's order. Output: a tensor in NHWC, seen in the model's order, or a
reduction in plain loops. Invariant: kernels are for float32 and windows that are walked channel by channel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from smelt.codegen.kernel_forms import WindowKernel
from smelt.ir.kernel import Geometry, Tensor
from smelt.ir.kernel.in_loops import pool_in_loops

from .window_sizes import MOST_AXES, MOST_TAPS

if TYPE_CHECKING:
    from .builder import CpuBuilder

_REASON: Final = "lanes are channels, and only taps inside of the image are visited"


def pool(k: CpuBuilder, kind: str, x: Tensor, g: Geometry, counted: bool) -> Tensor:
    if x.dtype != "f32" or g.rank > MOST_AXES or g.taps > MOST_TAPS:
        return pool_in_loops(k, kind, x, g, counted=counted)
    kernel = WindowKernel("depthwise", k.to_nhwc(x), None, g, pool=kind, counted=counted, reason=_REASON)
    return k.from_nhwc(k.make((x.shape[0], *g.out, x.shape[1]), x.dtype, kernel))
