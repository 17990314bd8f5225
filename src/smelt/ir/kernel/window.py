"""Where windows lie over an image: what convolutions and pools have in common.

Input: attributes of a node and the sizes of its image. Output: `Geometry`. Invariant: kernel, strides and dilations are
numbers, sizes and padding may be free; the axes are the image's spatial ones, batch and channels left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .index import Ix, fn, ix

MOST_AXES = 3
LEAST_PIXELS = 144  # of a result, from which on Winograd's form of a convolution wins
LEAST_CHANNELS = 16  # and channels on either side
MOST_TAPS = 128  # of a window that is walked channel by channel
LINES_FLOATS = 8192  # of an image's lines, copied side by side into L1: SMELT_LINES_FLOATS
LINES_DEPTH = 80  # channels up to which windows are read from such copies: SMELT_LINES_DEPTH
LINES_WINDOWS = 14  # side by side that their lines must have room for: SMELT_LINES_WINDOWS


@dataclass(frozen=True)
class Geometry:
    """Tap t of the window at o sees the pixel o * stride + t * dilation - before, nothing where there is none.

    `spread` turns that around, as a transposed convolution does: pixel i reaches o = i * stride + t * dilation -
    before.    `after` is the padding behind the image; only a mean that counts padding asks for it."""

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

    @property
    def square(self) -> bool:
        """3 x 3 taps side by side, a window at every pixel: Winograd's form exists."""
        near = self.stride == self.dilation == (1, 1)
        return near and self.kernel == (3, 3) and not (self.spread or self.direct)

    @property
    def side_by_side(self) -> bool:
        """The taps of a line are neighbours."""
        return not self.spread and self.dilation[-1] == 1

    def lines_fit(self, depth: int) -> int:
        """Windows of `depth` channels side by side whose lines fit LINES_FLOATS."""
        line = self.kernel[-1]
        each = LINES_FLOATS // (self.taps // line * depth)
        return 0 if each < line else (each - line) // self.stride[-1] + 1

    def filled(self) -> list[tuple[Ix, ...]]:
        """sizes, out, kernel, stride, dilation, before, after with leading axes of one pixel, MOST_AXES in all."""
        missing = MOST_AXES - self.rank
        return [
            (*(ix(neutral) for _ in range(missing)), *(ix(v) for v in values))
            for values, neutral in (
                (self.sizes, 1), (self.out, 1), (self.kernel, 1), (self.stride, 1), (self.dilation, 1),
                (self.before, 0), (self.after, 0),
            )
        ]  # fmt: skip


def same_padding(size: Ix, out: Ix, kernel: int, stride: int, dilation: int, *, upper: bool) -> tuple[Ix, Ix]:
    """Padding that gives `out` windows, the odd cell behind (upper) or in front of the image."""
    total = fn("max", (out - 1) * stride + ((kernel - 1) * dilation + 1) - size, 0)
    less = total // 2
    return (less, total - less) if upper else (total - less, less)


def numbers(values: Sequence[Ix]) -> tuple[int, ...] | None:
    """The values as numbers, when all are known."""
    plain = tuple(v.const for v in values if v.const is not None)
    return plain if len(plain) == len(values) else None
