"""Weights that are packed ahead of time.

Input: a tensor and the name of a layout. Output: which weight it is and the buffer that will hold its panels.
Invariant: only what is the same for many calls is packed; a format whose elements are computed, not copied, needs a
constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from smelt.ir.kernel import Buffer, Stored, Tensor, View

from .formats import NARROW, format_named

_TRANSPOSED = {
    f"{kind}{one}": f"{kind}{other}"
    for kind in ("", *(f"{narrow}:" for narrow in NARROW))
    for one, other in (("plain", "transposed"), ("transposed", "plain"))
}


@dataclass(frozen=True)
class PackedWeight:
    value: ir.Value
    layout: str
    buffer: Buffer


def packed_weight(x: Tensor, layout: str, widened: Mapping[Tensor, Tensor]) -> PackedWeight | None:
    """None for what is no weight, or where the format does not fit it."""
    source, layout = _untransposed(x, layout)
    stored, wanted = widened.get(source, source).definition, format_named(layout)
    if not isinstance(stored, Stored) or not isinstance(stored.buffer.weight, ir.Value):
        return None
    value, plain = stored.buffer.weight, stored.buffer
    if value.const_value is None and not wanted.is_fed(plain.shape):
        return None
    shape = wanted.shape(plain.shape) if wanted.takes(plain.dtype) else None
    if shape is None:
        return None
    return PackedWeight(value, layout, Buffer(f"{plain.name}{layout.replace(':', '')}", wanted.dtype, shape))


def _untransposed(x: Tensor, layout: str) -> tuple[Tensor, str]:
    """A weight behind a transposition is packed from where it is: tied embeddings, for example."""
    definition = x.definition
    if layout not in _TRANSPOSED or not isinstance(definition, View) or definition.src is None:
        return x, layout
    return (definition.src, _TRANSPOSED[layout]) if definition.perm == (1, 0) else (x, layout)
