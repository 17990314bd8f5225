"""Weights that are packed ahead of time.

Input: a tensor and the name of a layout. Output: which weight it is and the buffer that will hold its panels.
Invariant: only what is the same for many calls is packed; a layout whose elements are computed, not copied, needs a
constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from smelt.base.dtype import BY_NAME
from smelt.ir.kernel import Buffer, Ix, Stored, Tensor, View
from smelt.ir.kernel.int8_panels import int8_panel_shape, is_int8, packed_dtype

from .panels import COMPUTED, arranged_shape, panel_shape

_TRANSPOSED = {"plain": "transposed", "transposed": "plain"}


@dataclass(frozen=True)
class PackedWeight:
    value: ir.Value
    layout: str
    name: str
    shape: tuple[Ix, ...]

    def buffer(self) -> Buffer:
        return Buffer(self.name, packed_dtype(self.layout), self.shape)


def packed_weight(x: Tensor, layout: str, widened: Mapping[Tensor, Tensor]) -> PackedWeight | None:
    """None for what is no weight, or where the layout does not fit it."""
    source, layout = _untransposed(x, layout)
    stored = widened.get(source, source).definition
    if not isinstance(stored, Stored) or not isinstance(stored.buffer.weight, ir.Value):
        return None
    value, buffer = stored.buffer.weight, stored.buffer
    if (layout in COMPUTED or is_int8(layout)) and value.const_value is None:
        return None
    panels = _panels(buffer, layout)
    return None if panels is None else PackedWeight(value, layout, f"{buffer.name}{layout.replace(':', '')}", panels)


def _untransposed(x: Tensor, layout: str) -> tuple[Tensor, str]:
    """A weight behind a transposition is packed from where it is: tied embeddings, for example."""
    definition = x.definition
    if layout not in _TRANSPOSED or not isinstance(definition, View) or definition.src is None:
        return x, layout
    return (definition.src, _TRANSPOSED[layout]) if definition.perm == (1, 0) else (x, layout)


def _panels(buffer: Buffer, layout: str) -> tuple[Ix, ...] | None:
    if is_int8(layout):
        return int8_panel_shape(buffer.shape, layout) if buffer.dtype in ("i8", "u8") else None
    matrices = arranged_shape(buffer.shape, layout) if BY_NAME[buffer.dtype].compute == "f32" else None
    return None if matrices is None else panel_shape(matrices)
