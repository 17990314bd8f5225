"""Sizes that window kernels are made for, and what of a geometry they ask.

Input: a `Geometry`. Output: whether, and how far, a kernel takes it. Invariant: constants that the C headers have too
are named after them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from smelt.ir.kernel import Geometry, Ix, ix

MOST_AXES = 3
LEAST_PIXELS = 144  # of a result, from which on Winograd's form of a convolution wins
LEAST_CHANNELS = 16  # and channels on either side
MOST_TAPS = 128  # of a window that is walked channel by channel
FEW_CHANNELS = 8  # below which half of a vector of them would be empty
LONG_LINE = 64  # windows of a line that are worth the work that begins it
POOL_COLUMNS = 256  # of a line whose maxima fit SMELT_POOL_LINE sixteen channels at a time
POOL_LEAST = 8  # windows that they are to be enough for: SMELT_POOL_LEAST
LINES_FLOATS = 8192  # of an image's lines, copied side by side into L1: SMELT_LINES_FLOATS
LINES_DEPTH = 80  # channels up to which windows are read from such copies: SMELT_LINES_DEPTH
DEPTHWISE_LINES = ((5, 1), (5, 2), (7, 1), (7, 2))  # taps along a line and pixels between windows: depthwise_lines.h
PATCH_TAPS = 16  # of one channel, from which on windows are computed patch by patch: SMELT_PATCH_TAPS
LINES_WINDOWS = 14  # side by side that their lines must have room for: SMELT_LINES_WINDOWS


def is_square(g: Geometry) -> bool:
    """3 x 3 taps side by side, a window at every pixel: Winograd's form exists."""
    near = g.stride == g.dilation == (1, 1)
    return near and g.kernel == (3, 3) and not (g.spread or g.direct)


def side_by_side(g: Geometry) -> bool:
    """The taps of a line are neighbours."""
    return not g.spread and g.dilation[-1] == 1


def maxima_fit(g: Geometry) -> bool:
    """Whether the largest of each window may be found line by line, of columns first."""
    columns = (g.kernel[-1] - 1) * g.dilation[-1] + 1 + (POOL_LEAST - 1) * g.stride[-1]
    return max(g.kernel[-1], g.taps // g.kernel[-1]) <= MOST_TAPS and columns <= POOL_COLUMNS


def lines_unit(taps: int, stride: int) -> str:
    """The library's unit of depthwise_lines.h for these."""
    return f"depthwise_lines_{taps}_{stride}"


def depthwise_unit(kernel: Sequence[int], stride: int, dilation: int) -> str:
    """The library's unit for a depthwise window: by lines of taps in registers, by patches in L1, or plainly. `stride`
    and `dilation` are those of the last axis."""
    if math.prod(kernel[:-2]) == dilation == 1 and (kernel[-1], stride) in DEPTHWISE_LINES:
        return lines_unit(kernel[-1], stride)
    return "depthwise_patch" if math.prod(kernel) >= PATCH_TAPS else "depthwise"


def lines_fit(g: Geometry, depth: int) -> int:
    """Windows of `depth` channels side by side whose lines fit LINES_FLOATS."""
    line = g.kernel[-1]
    each = LINES_FLOATS // (g.taps // line * depth)
    return 0 if each < line else (each - line) // g.stride[-1] + 1


def filled(g: Geometry) -> list[tuple[Ix, ...]]:
    """sizes, out, kernel, stride, dilation, before, after with leading axes of one pixel, MOST_AXES in all."""
    missing = MOST_AXES - g.rank
    neutral = (1, 1, 1, 1, 1, 0, 0)
    return [(*(ix(n) for _ in range(missing)), *values) for values, n in zip(g.axes(), neutral, strict=True)]
