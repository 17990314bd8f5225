"""Where windows lie over an image: what convolutions and pools have in common.

Input: attributes of a node and the sizes of its image. Output: `Geometry`. Invariant: kernel, strides and dilations are
numbers, sizes and padding may be free; the axes are the image's spatial ones, batch and channels left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .index import Ix, fn, ix


@dataclass(frozen=True)
class Geometry:
    """Tap t of the window at o sees the pixel o * stride + t * dilation - before, nothing where there is none.

    `spread` turns that around, as a transposed convolution does: pixel i reaches o = i * stride + t * dilation -
    before. `after` is the padding behind the image; only a mean that counts padding asks for it."""

    sizes: tuple[Ix, ...]
    out: tuple[Ix, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[Ix, ...]
    after: tuple[Ix, ...]
    spread: bool = False
    direct: bool = False  # no transform: every product of a tap and a pixel is computed

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def taps(self) -> int:
        count = 1
        for k in self.kernel:
            count *= k
        return count

    @property
    def pointwise(self) -> bool:
        """Every window is one pixel and every pixel one window: a convolution is a plain product."""
        ones = (*self.kernel, *self.stride)
        return all(v == 1 for v in ones) and all(p.const == 0 for p in (*self.before, *self.after))

    def axes(self) -> list[tuple[Ix, ...]]:
        """sizes, out, kernel, stride, dilation, before, after."""
        numbers = [tuple(ix(v) for v in values) for values in (self.kernel, self.stride, self.dilation)]
        return [self.sizes, self.out, *numbers, self.before, self.after]


def same_padding(size: Ix, out: Ix, kernel: int, stride: int, dilation: int, *, upper: bool) -> tuple[Ix, Ix]:
    """Padding that gives `out` windows, the odd cell behind (upper) or in front of the image."""
    total = fn("max", (out - 1) * stride + ((kernel - 1) * dilation + 1) - size, 0)
    less = total // 2
    return (less, total - less) if upper else (total - less, less)


def numbers(values: Sequence[Ix]) -> tuple[int, ...] | None:
    """The values as numbers, when all are known."""
    plain = tuple(v.const for v in values if v.const is not None)
    return plain if len(plain) == len(values) else None
