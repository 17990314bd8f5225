"""Barrier-free row-block fusion: launches that go through the same rows without waiting for other rows.

Input: kernels, and launches in execution order. Output: the launches, with neighbours merged.
Invariant: of every buffer that one kernel of such a launch writes and another one touches, each of them touches, for a
row of its result, that row alone; so blocks of rows never wait for each other. Whether the kernels are cut into the
same blocks is seen when they run (`loop.h`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from smelt.codegen.machine_sizes import machine_sizes
from smelt.ir.kernel import Ix

from .emit import Kernel
from .groups import shared_writes
from .tile_fusion import Launches

MOST_FUSED = 16
MOST_PANELS = machine_sizes()["fused_floats"]  # larger operands are better cut by columns


def fuse_row_blocks(launches: Launches, kernels: Sequence[Kernel]) -> Launches:
    """Neighbouring launches of products of the same rows, as long as each touches only rows of its own."""
    groups: list[list[int]] = []
    tiled: dict[int, str] = {}
    steps: dict[int, list[int]] = {}
    for place, group in enumerate(launches.groups):
        if place in launches.tiled:
            tiled[len(groups)] = launches.tiled[place]
        elif groups and len(groups) - 1 not in tiled and _joins(groups[-1], group, kernels):
            last = len(groups) - 1
            steps.setdefault(last, [len(groups[last])]).append(len(group))
            groups[last] += group
            continue
        groups.append(list(group))
    row_fused = {place: tuple(counts) for place, counts in steps.items()}
    return replace(launches, groups=groups, tiled=tiled, row_fused=row_fused)


def _joins(before: Sequence[int], group: Sequence[int], kernels: Sequence[Kernel]) -> bool:
    if len(before) + len(group) > MOST_FUSED:
        return False
    rows = fused_rows(kernels[before[0]])
    if rows is None or any(fused_rows(kernels[place]) != rows for place in (*before, *group)):
        return False
    pairs = [(kernels[one], kernels[other]) for one in before for other in group]
    return all(shared_writes(one, other) <= one.row_affine & other.row_affine for one, other in pairs)


def fused_rows(kernel: Kernel) -> Ix | None:
    """Of a kernel that may be cut into blocks of rows."""
    made = kernel.product
    if kernel.row_sizes is not None:
        return kernel.row_sizes.all
    if made is None or made.unpacked or made.batches.const != 1:
        return None
    panels = (made.columns * made.depth * made.copies).const
    alone = made.b2b is None and not made.whole_rows and panels is not None and panels <= MOST_PANELS
    return made.rows if alone or made.by_rows else None
