"""The tensor language with layouts: what ops state, in the forms that CPU kernels take.

Input: the calls that the op declarations make. Output: the same tensors, of which contractions may be `Lowered` forms
over packed operands. Invariant: a tensor has the shape, the type and the elements that `Builder` gives it; only where
they are in memory, and which kernel makes them, is decided here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import onnx_ir as ir

from smelt.ir.kernel import Buffer, Builder, Function, Geometry, Stored, Tensor
from smelt.ops.integer_product import NAME
from smelt.ops.quantized_recurrent import NAME as LSTM

from .block_quantized import block_quantized_product, block_quantized_rows
from .contraction import packed_contraction
from .convolution import Case, convolution
from .int8_lstm import int8_lstm
from .int8_product import int8_product
from .int8_seen import Seen
from .nhwc import NhwcBuilder
from .pooling import pool
from .recurrent import recurrent
from .weights import packed_weight

# Functions whose operands have a layout of their own, by name.
_FUNCTIONS: Final[dict[str, Callable[[Builder, Function], Function]]] = {
    "smelt_gather_blocks": block_quantized_rows,
    "smelt_nbits_product": block_quantized_product,
    "smelt_recurrent": recurrent,
    NAME: int8_product,
    LSTM: int8_lstm,
}


@dataclass
class CpuBuilder(NhwcBuilder):
    """One per region. `packed_as` says of which weight, in which layout, a buffer is; `widened` are weights in the type
    that they are computed in, each with the weight as it is stored; `exact` are those that a Cast of the model itself
    widens."""

    packed: dict[tuple[ir.Value, str], Buffer] = field(default_factory=dict[tuple[ir.Value, str], Buffer])
    packed_as: dict[int, tuple[ir.Value, str]] = field(default_factory=dict[int, tuple[ir.Value, str]])
    widened: dict[Tensor, Tensor] = field(default_factory=dict[Tensor, Tensor])
    exact: set[Tensor] = field(default_factory=set[Tensor])
    seen: Seen = field(default_factory=Seen)

    def note_readers(self, x: Tensor, readers: int) -> None:
        """So many places of the model read the value that x is."""
        self.seen.readers[x] = self.seen.readers.get(x, 0) + readers

    def computable(self, x: Tensor) -> Tensor:
        made = super().computable(x)
        if made is not x and isinstance(x.definition, Stored):
            self.widened[made] = x
        return made

    def pack(self, x: Tensor, layout: str) -> Tensor | None:
        """The weight that x is, or is the transpose of, packed ahead of time; None for what is no weight."""
        found = packed_weight(x, layout, self.widened)
        if found is None:
            return None
        key = found.value, found.layout
        if key not in self.packed:
            self.packed[key] = found.buffer
            self.packed_as[self.packed[key].uid] = key
        return self.stored(self.packed[key])

    def contraction(self, a: Tensor, b: Tensor, *, zero_padded: bool = False) -> Tensor:
        return packed_contraction(self, a, b) or super().contraction(a, b, zero_padded=zero_padded)

    def convolution(
        self, x: Tensor, weights: Tensor, geometry: Geometry, groups: int = 1, bias: Tensor | None = None
    ) -> Tensor:
        rows, columns = (size.const or 0 for size in weights.shape[:2])
        filters, depth = (columns * groups, rows // groups) if geometry.spread else (rows, columns)
        return convolution(Case(self, x, weights, geometry, groups, filters, depth), bias)

    def pool(self, kind: str, x: Tensor, geometry: Geometry, *, counted: bool = False) -> Tensor:
        return pool(self, kind, x, geometry, counted)

    def function(self, call: Function) -> tuple[Tensor, ...]:
        return super().function(callable_function(self, call))


def callable_function(k: Builder, call: Function) -> Function:
    """A function as its C takes it: with the layouts and the scratch memory that its header takes for granted."""
    prepare = _FUNCTIONS.get(call.name)
    return call if prepare is None else prepare(k, call)
