"""The packing record: how a weight is stored for the kernels that read it.

Input: the name of a format. Output: `PackedFormat`, which tells the shape and the contents of the packed weight.
Invariant: one record serves constants that are packed ahead of time, weights that a runner feeds and keeps packed
(PyTorch's), and what the C headers expect; its name is all that a model's metadata or a manifest keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from smelt.base.dtype import BY_NAME
from smelt.ir.kernel import Ix, ix

from . import winograd
from .arrangement import MATRICES, PANEL, Step, moved_array, moved_shape, to_matrices, to_panels
from .int8_panels import INTERLEAVE, int8_panel_shape, int8_panels
from .nbits_panels import is_nbits, nbits_dtype, nbits_panels, nbits_shape
from .pack import pack

Array = np.ndarray[Any, Any]
_INT8: Final = "int8"
_BYTES: Final = ("i8", "u8")
NARROW: Final = ("bf16", "f16")


@dataclass(frozen=True)
class PackedFormat:
    """Panels of `columns` columns (NR) with `interleave` neighbours along K side by side (KR), elements of `dtype`.

    `arrangement` says how the weight becomes matrices, of `groups` groups. With `sums` each panel carries the sums of
    its columns, which zero points of the other operand need. `computed`: elements are no copies, so that only a
    constant can be packed."""

    name: str
    arrangement: str
    groups: int = 1
    dtype: str = "f32"
    columns: int = PANEL
    interleave: int = 1
    sums: bool = False
    computed: bool = False

    def takes(self, dtype: str) -> bool:
        """Whether a weight of this type can be packed so."""
        return dtype in _BYTES if self.dtype == "i8" else BY_NAME[dtype].compute == self.dtype

    def matrices(self, shape: Sequence[Ix]) -> tuple[Ix, ...] | None:
        """The stack of matrices (..., K, N) that a weight of this shape becomes; None where the format does not fit."""
        if self.arrangement in MATRICES:
            return tuple(shape[::-1] if self.arrangement == "transposed" else shape) if len(shape) == 2 else None
        known = [size.const for size in shape if size.const is not None]
        if len(known) != len(shape):
            return None
        if self.arrangement == "winograd":
            fits = len(known) == 4 and known[2:] == [3, 3]
            return (ix(winograd.TERMS), ix(known[1]), ix(known[0])) if fits else None
        steps = to_matrices(known, self.arrangement, self.groups)
        return None if steps is None else tuple(ix(size) for size in moved_shape(known, steps))

    def shape(self, shape: Sequence[Ix]) -> tuple[Ix, ...] | None:
        """The shape of the packed weight."""
        if self.dtype == "i8":
            return int8_panel_shape(shape, self.name)
        matrices = self.matrices(shape)
        return None if matrices is None else panel_shape(matrices)

    def packed(self, plain: Array) -> Array:
        """The packed weight."""
        if self.dtype == "i8":
            return int8_panels(plain, self.name)
        wide = plain.astype(np.float32, copy=False)
        if self.arrangement == "winograd":
            return pack(winograd.factors(wide).transpose(2, 1, 0).astype(np.float32))
        return pack(moved_array(wide, self._to_matrices(plain.shape)))

    def is_fed(self, shape: Sequence[Ix]) -> bool:
        """Whether a weight of this shape may come at run time."""
        del shape
        return not self.computed

    def steps(self, shape: Sequence[int]) -> list[Step]:
        """Data movements that pack a weight of this shape, where its elements are copies."""
        steps = self._to_matrices(shape)
        return [*steps, *to_panels(moved_shape(shape, steps))]

    def _to_matrices(self, shape: Sequence[int]) -> list[Step]:
        steps = to_matrices(shape, self.arrangement, self.groups)
        assert steps is not None, f"{self.name} does not fit {shape}"
        return steps


class BlockQuantizedFormat(PackedFormat):
    """Weights, scales or zero points of 2, 4 or 8-bit blocks along K: see `nbits_panels.py`."""

    def takes(self, dtype: str) -> bool:
        return dtype == self.dtype if self.dtype == "u8" else BY_NAME[dtype].compute == "f32"

    def shape(self, shape: Sequence[Ix]) -> tuple[Ix, ...] | None:
        return nbits_shape(shape, self.name)

    def packed(self, plain: Array) -> Array:
        return nbits_panels(plain, self.name)


class NarrowFormat(PackedFormat):
    """Panels in the weight's own type: `bf16`, two k side by side, of an odd number with a zero; or `f16`."""

    def takes(self, dtype: str) -> bool:
        return dtype == self.dtype

    def shape(self, shape: Sequence[Ix]) -> tuple[Ix, ...] | None:
        matrices = self.matrices(shape)
        if matrices is None:
            return None
        *outer, depth, lanes = panel_shape(matrices)
        return (*outer, (depth + (self.interleave - 1)) // self.interleave, lanes * self.interleave)

    def packed(self, plain: Array) -> Array:
        panels = super().packed(plain).astype(plain.dtype)
        return panels if self.interleave == 1 else _interleaved(panels)

    def steps(self, shape: Sequence[int]) -> list[Step]:
        """For whole panels and pairs of k: stock ONNX Runtime pads no bfloat16."""
        *outer, depth, lanes = moved_shape(shape, steps := super().steps(shape))
        if self.interleave == 1:
            return steps
        pairs = [*outer, depth // 2, 2, lanes]
        swapped = [*range(len(pairs) - 2), len(pairs) - 1, len(pairs) - 2]
        return [*steps, ("Reshape", pairs), ("Transpose", swapped), ("Reshape", [*pairs[:-2], 2 * lanes])]

    def is_fed(self, shape: Sequence[Ix]) -> bool:
        """Whether a weight of this shape may come at run time."""
        matrices = self.matrices(shape)
        depth, columns = (size.const for size in matrices[-2:]) if matrices is not None else (None, None)
        return depth is not None and columns is not None and depth % self.interleave == 0 and columns % PANEL == 0


def _interleaved(panels: Array) -> Array:
    """[..., k, column] -> [..., pair of k, column and k of the pair]."""
    *outer, depth, lanes = panels.shape
    even = panels if depth % 2 == 0 else np.concatenate([panels, np.zeros_like(panels[..., :1, :])], axis=-2)
    pairs = even.reshape(*outer, -1, 2, lanes)
    return np.ascontiguousarray(pairs.swapaxes(-1, -2)).reshape(*outer, -1, 2 * lanes)


@lru_cache(maxsize=256)
def format_named(name: str) -> PackedFormat:
    """`arrangement`, `arrangement:groups`, or either behind a type; `int8` alone is plain. Or of nbits_panels."""
    if is_nbits(name):
        return BlockQuantizedFormat(name, "nbits", dtype=nbits_dtype(name), computed=True)
    kind, _, rest = name.partition(":")
    if kind == _INT8:
        arrangement, _, groups = rest.partition(":")
        return PackedFormat(
            name, arrangement or "plain", int(groups or 1), "i8", interleave=INTERLEAVE, sums=True, computed=True
        )
    if kind in NARROW:
        arrangement, _, groups = rest.partition(":")
        interleave = 2 if kind == "bf16" else 1
        return NarrowFormat(name, arrangement, int(groups or 1), kind, interleave=interleave)
    return PackedFormat(name, kind, int(rest or 1), computed=kind == "winograd")


def panel_shape(matrices: Sequence[Ix]) -> tuple[Ix, ...]:
    """The shape of the panels of a stack of matrices."""
    *stack, depth, columns = matrices
    return (*stack, (columns + (PANEL - 1)) // PANEL, depth, ix(PANEL))


def packed_array(plain: Array, layout: str) -> Array:
    """A constant or weight in the format of this name."""
    return format_named(layout).packed(plain)
