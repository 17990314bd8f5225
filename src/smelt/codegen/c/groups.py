"""Which kernels of a region run at the same time: independent ones share one barrier.

Input: kernels in an order that respects their needs. Output: groups of them, in execution order. Invariant: a kernel
comes after the groups of all that it reads, overwrites or is overwritten by; within a group no two kernels touch a
buffer that one of them writes.
"""

from __future__ import annotations

from collections.abc import Sequence

from .emit import Kernel

MOST_TOGETHER = 8
LOOK_BACK = 8


def group_kernels(kernels: Sequence[Kernel]) -> list[list[int]]:
    """Places of kernels. A kernel joins the last group where it can, a product also an earlier one with its operand.

    Looking back is bounded: what runs early lives long.
    """
    groups: list[list[int]] = []
    group_of: list[int] = []
    for place, kernel in enumerate(kernels):
        ready = 1 + max((group_of[p] for p in range(place) if shared_writes(kernel, kernels[p])), default=-1)
        chosen = _choose(kernel, ready, groups, kernels)
        if chosen == len(groups):
            groups.append([])
        groups[chosen].append(place)
        group_of.append(chosen)
    return groups


def _choose(kernel: Kernel, ready: int, groups: Sequence[Sequence[int]], kernels: Sequence[Kernel]) -> int:
    last = len(groups) - 1
    if kernel.product is not None:
        for place in range(max(ready, last - LOOK_BACK), last):
            if len(groups[place]) < MOST_TOGETHER and any(_share_operand(kernel, kernels[p]) for p in groups[place]):
                return place
    return last if 0 <= ready <= last and len(groups[last]) < MOST_TOGETHER else last + 1


def shared_writes(one: Kernel, other: Kernel) -> frozenset[int]:
    """What both touch and one of them writes."""
    return (_written(one) & _touched(other)) | (_written(other) & _touched(one))


def _share_operand(one: Kernel, other: Kernel) -> bool:
    return other.product is not None and bool(_touched(one) & _touched(other))


def _touched(kernel: Kernel) -> frozenset[int]:
    return frozenset(b.uid for b in kernel.buffers)


def _written(kernel: Kernel) -> frozenset[int]:
    return kernel.written if kernel.written is not None else _touched(kernel)
