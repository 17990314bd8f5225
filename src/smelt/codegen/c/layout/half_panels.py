"""Constant weights of bfloat16 and float16, which stay narrow in memory where they are multiplied.

Input: a weight in the type that it is computed in, and what it is multiplied with. Output: its panels in the type that
it is stored in, and the arithmetic of a product with them. Invariant: float16 weights, and bfloat16 ones that the model
itself widens for a float32 product, are widened exactly, but where the rows come from bfloat16 too: then nothing is
rounded. Other products of bfloat16 weights round their rows to bfloat16 where the CPU multiplies it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from smelt.codegen.kernel_forms import Narrow
from smelt.ir.kernel import Map, Tensor, View

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


def half_panels(k: CpuBuilder, rows: Tensor, weight: Tensor, layout: str) -> HalfPanels | None:
    """None for what is stored in another type, or is no constant."""
    definition = weight.definition
    source = definition.src if isinstance(definition, View) and definition.src is not None else weight
    stored = k.widened.get(source)
    if stored is None or stored.dtype not in NARROW:
        return None
    panels = k.pack(weight, f"{stored.dtype}:{layout}")
    if panels is None:
        return None
    if stored.dtype == "f16":
        return HalfPanels(panels, "F16")
    return HalfPanels(panels, "WIDENED" if source in k.exact and not is_widened_bfloat16(rows) else "BF16")


def is_widened_bfloat16(x: Tensor) -> bool:
    """Whether each element is a bfloat16 number, read or rounded to before, perhaps in other places."""
    definition = x.definition
    while isinstance(definition, View) and definition.src is not None:
        definition = definition.src.definition
    return isinstance(definition, Map) and [arg.dtype for arg in definition.args] == ["bf16"]
