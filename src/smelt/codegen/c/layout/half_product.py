"""Products of float32 rows with constant weights of bfloat16 or float16, which stay narrow in memory.

Input: both operands, of which the right one is a narrow weight behind a Cast, perhaps transposed. Output: the function
of `half_unit.h` over packed weights, or None. Invariant: numbers are in the order of the header's enum; the weights are
widened exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from smelt.ir.kernel import Function, Tensor, View, ix, product
from smelt.ir.kernel.tensor import Arrays

from .formats import NARROW
from .pack import unpack

if TYPE_CHECKING:
    from .builder import CpuBuilder

UNIT: Final = "#include <smelt/half/half_unit.h>\n"
LINKS: Final = ("tiles",)
_DEPTH, _COLUMNS = 1, 2


def half_product(k: CpuBuilder, a: Tensor, b: Tensor) -> Tensor | None:
    """None where the right operand is no such weight."""
    definition = b.definition
    source = definition.src if isinstance(definition, View) and definition.src is not None else b
    narrow = k.narrow.get(source)
    if narrow is None or b.rank != 2 or a.rank < 2 or a.dtype != "f32" or narrow.dtype not in NARROW:
        return None
    depth, columns = (size.const for size in b.shape)
    panels = k.pack(b, f"{narrow.dtype}:plain")
    if panels is None or depth is None or columns is None:
        return None
    k.require_equal(a.shape[-1], b.shape[0], "the inner sizes of a product must agree")
    rows = product(a.shape[:-1])
    function = Function(
        name="smelt_half_product",
        text=UNIT,
        links=LINKS,
        operands=(a, panels),
        results=(((*a.shape[:-1], ix(columns)), "f32"),),
        numbers=(rows, ix(depth), ix(columns), ix(int(narrow.dtype == "f16"))),
        factors=(),
        scratch_bytes=ix(0),
        flops=rows * (depth * columns * 2),
        reference=reference,
    )
    return k.function(function)[0]


def reference(arrays: Arrays, numbers: Sequence[int], _: Sequence[float]) -> tuple[np.ndarray[Any, Any], ...]:
    """By numpy in float64."""
    a, panels = arrays
    assert a is not None and panels is not None
    matrix = unpack(panels.astype(np.float32), numbers[_COLUMNS])
    made = a.reshape(-1, numbers[_DEPTH]).astype(np.float64) @ matrix
    return (made.reshape(*a.shape[:-1], numbers[_COLUMNS]),)
