"""Tile fusion of convolutions: which kernels run as one launch, by spatial or channel tiles.

Input: groups of kernels in execution order. Output: the same with some merged, and the buffers that need no memory of
their own. Invariant: what lies between two merged kernels is written by one, line by line as its windows are counted,
and read by the next one alone, as its image. Large images run by spatial tiles, and what lies between has no memory of
its own; small ones by channel tiles, a range of channels each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from smelt.codegen.machine_sizes import machine_sizes

from .emit import Kernel

LEAST_BYTES = machine_sizes()["tile_image_bytes"]
MOST_BUFFERS = 16
FEW_TERMS = 128  # of a sum that is cheap enough to be made twice
LEAST_CHANNEL_TILE_COLUMNS = 384  # of which a range is worth a task


@dataclass(frozen=True)
class Launches:
    """`groups` are places of kernels; those in `tiled` run by the function that is named there. `inner` has the uids
    of what lies inside of tiles. Those in `row_fused` run in steps of so many kernels, a block of rows at a time."""

    groups: list[list[int]]
    tiled: dict[int, str]
    inner: frozenset[int]
    row_fused: Mapping[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])


def fuse_tiles(groups: Sequence[Sequence[int]], kernels: Sequence[Kernel], temporaries: Collection[int]) -> Launches:
    """A convolution, a kernel of windows over its result, then perhaps one of single pixels."""
    uses = Counter(b.uid for kernel in kernels for b in kernel.buffers)
    private = {uid for uid in temporaries if uses[uid] == 2}
    out: list[list[int]] = []
    tiled: dict[int, str] = {}
    inner: set[int] = set()
    place = 0
    while place < len(groups):
        length = _fusable(groups, place, kernels, private)
        if length > 1:
            tiled[len(out)] = "smelt_launch_spatial_tiles"
            inner |= {_result(kernels[groups[k][0]]) for k in range(place, place + length - 1)}
        elif _by_channel_tiles(groups, place, kernels, private):
            tiled[len(out)], length = "smelt_launch_channel_tiles", 2
        out.append([k for group in groups[place : place + length] for k in group])
        place += length
    return Launches(out, tiled, frozenset(inner))


def _result(kernel: Kernel) -> int:
    assert kernel.window is not None and kernel.window.tile is not None and kernel.window.tile.result is not None
    return kernel.window.tile.result


def _fusable(groups: Sequence[Sequence[int]], place: int, kernels: Sequence[Kernel], private: Collection[int]) -> int:
    """How many groups from this one on run as one launch."""
    stages = _singles(groups[place : place + 3], kernels)
    if len(stages) < 2 or not (_joined(stages[0], stages[1], private) and _worth(stages[0], stages[1])):
        return 1
    follows = len(stages) == 3 and _joined(stages[1], stages[2], private)
    return 3 if follows and _form(stages[2]) == "pointwise" else 2


def _singles(groups: Sequence[Sequence[int]], kernels: Sequence[Kernel]) -> list[Kernel]:
    """The kernels of the leading groups of one each: a group of several ends the search, it does not drop out of it."""
    return [kernels[group[0]] for group in takewhile(lambda group: len(group) == 1, groups)]


def _by_channel_tiles(
    groups: Sequence[Sequence[int]], place: int, kernels: Sequence[Kernel], private: Collection[int]
) -> bool:
    """Whether this group and the next run by channel tiles: single pixels, then channel by channel."""
    pair = _singles(groups[place : place + 2], kernels)
    if len(pair) < 2 or not _joined(pair[0], pair[1], private):
        return False
    first, second = (k.window for k in pair)
    assert first is not None and second is not None
    if (first.form, second.form) != ("pointwise", "depthwise") or first.unit != second.unit:
        return False
    columns = (first.columns.const or 0, second.columns.const or 0)
    return columns[0] == columns[1] >= LEAST_CHANNEL_TILE_COLUMNS and not (first.whole_rows or second.whole_rows)


def _form(kernel: Kernel) -> str:
    return kernel.window.form if kernel.window is not None else ""


def _joined(one: Kernel, other: Kernel, private: Collection[int]) -> bool:
    """Whether the second reads what the first makes, which nobody else needs."""
    first, second = (k.window.tile if k.window is not None else None for k in (one, other))
    if first is None or second is None or max(len(one.buffers), len(other.buffers)) > MOST_BUFFERS:
        return False
    return first.result in private and first.result == second.image


def _worth(one: Kernel, other: Kernel) -> bool:
    """Channel by channel after a pointwise or NCHW convolution: little is computed twice, a large image is between."""
    assert one.window is not None and one.window.tile is not None
    tile = one.window.tile
    if _form(one) not in ("pointwise", "nchw", "lines") or _form(other) != "depthwise":
        return False
    if _form(one) == "lines" and _made_twice(other) and (one.window.depth.const or 0) > FEW_TERMS:
        return False
    return tile.lines * tile.line_bytes >= LEAST_BYTES


def _made_twice(kernel: Kernel) -> bool:
    """Whether neighbouring lines of its windows share lines of the image."""
    assert kernel.window is not None and kernel.window.tile is not None
    return kernel.window.tile.extent > kernel.window.tile.stride


def stage_text(kernel: Kernel, task: str, places: Mapping[int, int]) -> str:
    """One entry of a launch's table; `places` has the kernel's buffers by uid."""
    window = kernel.window
    assert window is not None and window.tile is not None
    tile = window.tile
    numbers = (
        len(kernel.buffers), places[tile.image], places.get(tile.result or -1, 0), tile.in_lines, tile.lines, tile.line,
        tile.line_bytes, tile.stride, tile.before, tile.extent, tile.columns, window.unit, window.depth.const or 1,
        window.taps,
    )  # fmt: skip
    return f"{{&{task}, SMELT_NAME({kernel.name}), {', '.join((*map(str, numbers), *window.wants))}}}"
