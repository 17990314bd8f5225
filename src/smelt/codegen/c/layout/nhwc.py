"""Images are kept in NHWC between ops, whatever order the model states them in.

Input: the calls of the tensor language. Output: the same tensors; one of ONNX's order (N, C, *spatial), or
(N, G, C, *spatial) of channels in groups, is an `ImageView` of the tensor (N, *spatial, C) that is made. Invariant:
what is computed from such a view is computed below it, so that no kernel ever walks a transposed image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from smelt.ir.kernel import Builder, Expr, Ix, IxLike, Tensor, View, ix
from smelt.ir.kernel.layout import Index
from smelt.ir.kernel.resampling import Taps, weighted

LINEAR_TAPS = 2


@dataclass(frozen=True, eq=False)
class ImageView(View):
    """The model's order of a tensor that is made in NHWC: element-wise tensors over it are made in NHWC too."""


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
    """The NHWC tensor that x is a view of. A model's own transpose of four axes or more counts too."""
    found = order_below(x)
    return found[0] if found is not None and found[1] == to_first(x.rank) else None


def order_below(x: Tensor) -> tuple[Tensor, tuple[int, ...]] | None:
    """As `image_below`, also for channels in groups, with the permutation that makes x of it."""
    definition = x.definition
    if not isinstance(definition, View) or definition.perm is None or definition.src is None:
        return None
    if isinstance(definition, ImageView) or (x.rank >= 4 and definition.perm == to_first(x.rank)):
        return definition.src, definition.perm
    return None


def _split_channels(image: Sequence[Ix], groups: Sequence[Ix]) -> bool:
    """Whether (N, G, C, *spatial) are the sizes of an image with its channels in groups, and all else as it was.
    Two spatial axes or more: with one, these are heads of attention, which products read."""
    if len(image) < 4 or len(groups) != len(image) + 1:
        return False
    return groups[0] == image[0] and groups[3:] == image[2:] and groups[1] * groups[2] == image[1]


class NhwcBuilder(Builder):
    """The tensor language over images in NHWC."""

    def to_nhwc(self, x: Tensor) -> Tensor:
        """An image (N, C, *spatial) as (N, *spatial, C). One channel, or one pixel, stays where it is."""
        below = image_below(x)
        if below is None and (x.shape[1].const == 1 or all(s.const == 1 for s in x.shape[2:])):
            return self.reshape(x, tuple(x.shape[axis] for axis in to_last(x.rank)))
        return below or self.transpose(x, to_last(x.rank))

    def from_nhwc(self, x: Tensor) -> Tensor:
        """An image that was made in NHWC, in the model's order: what is made from it stays below."""
        return x if x.rank < 3 else self._image(x, to_first(x.rank))

    def _image(self, x: Tensor, perm: tuple[int, ...]) -> Tensor:
        inverse = [perm.index(d) for d in range(x.rank)]
        view = ImageView(lambda w: x.at(tuple(w[k] for k in inverse)), x, perm)
        return self.make([x.shape[p] for p in perm], x.dtype, view)

    def map(self, body: Callable[..., Expr], *args: Tensor, dtype: str | None = None) -> Tensor:
        below = self._images_below(args)
        if below is None:
            return super().map(body, *args, dtype=dtype)
        images, order = below
        return self._image(self.map(body, *images, dtype=dtype), order)

    def reshape(self, x: Tensor, shape: Sequence[IxLike]) -> Tensor:
        sizes = tuple(ix(s) for s in shape)
        image = self._regrouped_image(x, sizes) if sizes != x.shape else None
        return super().reshape(x, sizes) if image is None else image

    def _regrouped_image(self, x: Tensor, sizes: Index) -> Tensor | None:
        """An image whose channels become groups of channels, or groups that become channels again: in NHWC."""
        found = order_below(x)
        if found is None:
            return None
        below, order = found
        if order == to_first(x.rank) and _split_channels(x.shape, sizes):
            grouped = self.reshape(below, (sizes[0], *sizes[3:], *sizes[1:3]))
            return self._image(grouped, groups_to_first(len(sizes)))
        if order == groups_to_first(x.rank) and _split_channels(sizes, x.shape):
            return self.from_nhwc(self.reshape(below, (sizes[0], *sizes[2:], sizes[1])))
        return None

    def squeeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        gone, found = {a % x.rank for a in axes}, order_below(x)
        if found is None or found[1] != groups_to_first(x.rank) or gone not in ({1}, {2}):
            return super().squeeze(x, axes)
        for axis in gone:
            self.require_equal(x.shape[axis], 1, "a squeezed dimension must be 1")
        return self.from_nhwc(self.squeeze(found[0], [found[1][axis] for axis in gone]))

    def slice(self, x: Tensor, starts: Sequence[IxLike], steps: Sequence[IxLike], sizes: Sequence[IxLike]) -> Tensor:
        below = image_below(x)
        if below is None:
            return super().slice(x, starts, steps, sizes)
        order = to_last(x.rank)
        transposed = [[values[p] for p in order] for values in (starts, steps, sizes)]
        return self.from_nhwc(self.slice(below, *transposed))

    def along_axes(self, x: Tensor, sizes: Sequence[IxLike], maps: Sequence[Callable[[Ix], Ix]]) -> Tensor:
        below, order = image_below(x), to_last(x.rank)
        if below is None:
            return super().along_axes(x, sizes, maps)
        return self.from_nhwc(super().along_axes(below, [sizes[p] for p in order], [maps[p] for p in order]))

    def tabulate(
        self, x: Tensor, shape: Sequence[IxLike], at: Callable[[Index], Expr], dtype: str | None = None
    ) -> Tensor:
        if image_below(x) is None or len(shape) != x.rank:
            return super().tabulate(x, shape, at, dtype)
        sizes = [shape[p] for p in to_last(x.rank)]
        return self.from_nhwc(super().tabulate(x, sizes, lambda w: at((w[0], w[-1], *w[1:-1])), dtype))

    def resample(self, x: Tensor, taps: Sequence[Taps]) -> Tensor:
        """Linearly along all axes of an image at once: four elements of neighbours that are whole vectors."""
        below, order = image_below(x), to_last(x.rank)
        if below is None or not taps or any(len(t.places) != LINEAR_TAPS for t in taps):
            return super().resample(x, taps)
        moved = [Taps(order.index(t.axis), t.after, t.places, t.weights) for t in taps]
        return self.from_nhwc(super().tabulate(below, *weighted(below, moved)))

    def reduce(self, kind: str, x: Tensor, axes: Sequence[int], *, dtype: str | None = None) -> Tensor:
        where = [a for a in sorted({a % x.rank for a in axes}) if x.shape[a].const != 1] if x.rank else []
        found = order_below(x)
        if found is None or not where:
            return super().reduce(kind, x, axes, dtype=dtype)
        below, order = found
        return self._image(self.reduce(kind, below, [order[a] for a in where], dtype=dtype), order)

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        below = self._images_below(parts) if len(parts) > 1 else None
        if below is None:
            return super().concat(parts, axis)
        images, order = below
        return self._image(self.concat(images, order[axis]), order)

    def pad(self, x: Tensor, before: Sequence[IxLike], after: Sequence[IxLike], value: float | int | bool) -> Tensor:
        below, order = image_below(x), to_last(x.rank)
        if below is None:
            return super().pad(x, before, after, value)
        return self.from_nhwc(self.pad(below, [before[p] for p in order], [after[p] for p in order], value))

    def _images_below(self, args: Sequence[Tensor]) -> tuple[list[Tensor], tuple[int, ...]] | None:
        """All operands in NHWC, when one of the largest rank is so already, and the permutation that makes the
        model's order of what is computed from them."""
        rank = max((a.rank for a in args), default=0)
        orders = [found[1] for a in args if a.rank == rank and (found := order_below(a)) is not None]
        return None if not orders else ([self._permuted(a, orders[0]) for a in args], orders[0])

    def _permuted(self, x: Tensor, order: tuple[int, ...]) -> Tensor:
        rank = len(order)
        found = order_below(x) if x.rank == rank else None
        if found is not None and found[1] == order:
            return found[0]
        if x.rank == 0:
            return x
        full = self.unsqueeze(x, range(rank - x.rank)) if x.rank < rank else x
        return self.transpose(full, [order.index(axis) for axis in range(rank)])
