"""Images are kept in NHWC between ops, whatever order the model states them in.

Input: operands of a map, reduction, slice, concatenation or padding. Output: the same operands in NHWC,
or None when none of them is an image that lies so. Invariant: ONNX's order (N, C, *spatial), or (N, G, C, *spatial) of
channels in groups, is a view of the tensor that was made; what is computed from such a view is computed below it, so
that no kernel ever walks a transposed image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .index import Ix
from .tensor import Tensor, View

Transpose = Callable[[Tensor, Sequence[int]], Tensor]
Unsqueeze = Callable[[Tensor, Sequence[int]], Tensor]


def to_first(rank: int) -> tuple[int, ...]:
    """The permutation that moves the last axis to the second place."""
    return (0, rank - 1, *range(1, rank - 1))


def to_last(rank: int) -> tuple[int, ...]:
    """The permutation that moves the second axis to the last place."""
    return (0, *range(2, rank), 1)


def groups_to_first(rank: int) -> tuple[int, ...]:
    """The permutation that moves the last two axes, groups and their channels, behind the first."""
    return (0, rank - 2, rank - 1, *range(1, rank - 2))


def image_below(x: Tensor) -> Tensor | None:
    """The tensor in NHWC that x is a view of. A model's own transpose of four axes or more counts too."""
    found = order_below(x)
    return found[0] if found is not None and found[1] == to_first(x.rank) else None


def order_below(x: Tensor) -> tuple[Tensor, tuple[int, ...]] | None:
    """As `image_below`, also for channels in groups, with the permutation that makes x of it."""
    definition = x.definition
    if not isinstance(definition, View) or definition.perm is None or definition.src is None:
        return None
    if definition.native or (x.rank >= 4 and definition.perm == to_first(x.rank)):
        return definition.src, definition.perm
    return None


def split_channels(image: Sequence[Ix], groups: Sequence[Ix]) -> bool:
    """Whether (N, G, C, *spatial) are the sizes of an image with its channels in groups, and all else as it was.
    Two spatial axes or more: with one, these are heads of attention, which products read."""
    if len(image) < 4 or len(groups) != len(image) + 1:
        return False
    return groups[0] == image[0] and groups[3:] == image[2:] and groups[1] * groups[2] == image[1]


def regrouped(x: Tensor) -> Tensor | None:
    """The tensor whose elements x has, in the same order, with other axes."""
    definition = x.definition
    return definition.src if isinstance(definition, View) and definition.regrouped else None


def images_below(
    args: Sequence[Tensor], transpose: Transpose, unsqueeze: Unsqueeze
) -> tuple[list[Tensor], tuple[int, ...]] | None:
    """All operands in NHWC, when one of the largest rank lies so already, and the permutation that
    makes the model's order of what is computed from them."""
    rank = max((a.rank for a in args), default=0)
    orders = [found[1] for a in args if a.rank == rank and (found := order_below(a)) is not None]
    if not orders:
        return None
    return [_transposed(a, orders[0], transpose, unsqueeze) for a in args], orders[0]


def _transposed(x: Tensor, order: tuple[int, ...], transpose: Transpose, unsqueeze: Unsqueeze) -> Tensor:
    rank = len(order)
    found = order_below(x) if x.rank == rank else None
    if found is not None and found[1] == order:
        return found[0]
    if x.rank == 0:
        return x
    full = unsqueeze(x, range(rank - x.rank)) if x.rank < rank else x
    return transpose(full, [order.index(axis) for axis in range(rank)])
