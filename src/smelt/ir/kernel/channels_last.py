"""Images keep their channels last between ops, whatever order the model states them in.

Input: operands of a map, reduction, slice, concatenation or padding. Output: the same operands with the channels last,
or None when none of them is an image that lies so. Invariant: ONNX's order (N, C, *spatial) is a view of the tensor
that was made; what is computed from such a view is computed below it, so that no kernel ever walks a transposed image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .tensor import Tensor, View

Transpose = Callable[[Tensor, Sequence[int]], Tensor]
Unsqueeze = Callable[[Tensor, Sequence[int]], Tensor]


def to_first(rank: int) -> tuple[int, ...]:
    """The permutation that moves the last axis to the second place."""
    return (0, rank - 1, *range(1, rank - 1))


def to_last(rank: int) -> tuple[int, ...]:
    """The permutation that moves the second axis to the last place."""
    return (0, *range(2, rank), 1)


def image_below(x: Tensor) -> Tensor | None:
    """The tensor with channels last that x is a view of. A model's own transpose of four axes or more counts too."""
    definition = x.definition
    if not isinstance(definition, View) or definition.perm is None or definition.src is None:
        return None
    if definition.native or (x.rank >= 4 and definition.perm == to_first(x.rank)):
        return definition.src
    return None


def regrouped(x: Tensor) -> Tensor | None:
    """The tensor whose elements x has, in the same order, with other axes."""
    definition = x.definition
    return definition.src if isinstance(definition, View) and definition.regrouped else None


def images_below(args: Sequence[Tensor], transpose: Transpose, unsqueeze: Unsqueeze) -> list[Tensor] | None:
    """All operands with their channels last, when one of the largest rank lies so already."""
    rank = max((a.rank for a in args), default=0)
    if not any(a.rank == rank and image_below(a) is not None for a in args):
        return None
    return [_turned(a, rank, transpose, unsqueeze) for a in args]


def _turned(x: Tensor, rank: int, transpose: Transpose, unsqueeze: Unsqueeze) -> Tensor:
    below = image_below(x) if x.rank == rank else None
    if below is not None:
        return below
    if x.rank == 0:
        return x
    full = unsqueeze(x, range(rank - x.rank)) if x.rank < rank else x
    return transpose(full, to_last(rank))
