"""Constant weights of bfloat16 and float16, which stay narrow in memory where they are multiplied.

Input: a weight in the type that it is computed in. Output: its panels in the type that it is stored in, and the
arithmetic of a product with them. Invariant: float16 weights, and bfloat16 ones that the model itself widens for a
float32 product, are widened exactly; other products of bfloat16 weights round their rows to bfloat16 where the CPU
multiplies it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from smelt.codegen.kernel_forms import Narrow
from smelt.ir.kernel import Tensor, View

from .formats import NARROW

if TYPE_CHECKING:
    from .builder import CpuBuilder

REASON: Final[dict[Narrow, str]] = {
    "BF16": "the weights are bfloat16: packed once, multiplied as they are where the CPU can",
    "F16": "the weights are float16: packed once, widened in registers and caches",
    "WIDENED": "the weights are bfloat16, the product is float32: packed once, widened in registers and caches",
}


@dataclass(frozen=True)
class HalfPanels:
    panels: Tensor
    narrow: Narrow


def half_panels(k: CpuBuilder, weight: Tensor, layout: str) -> HalfPanels | None:
    """None for what is stored in another type, or is no constant."""
    definition = weight.definition
    source = definition.src if isinstance(definition, View) and definition.src is not None else weight
    stored = k.widened.get(source)
    if stored is None or stored.dtype not in NARROW:
        return None
    panels = k.pack(weight, f"{stored.dtype}:{layout}")
    if panels is None:
        return None
    return HalfPanels(panels, "F16" if stored.dtype == "f16" else "WIDENED" if source in k.exact else "BF16")
