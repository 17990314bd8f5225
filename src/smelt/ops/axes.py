"""Axes as ONNX counts them: input, an axis that may be negative; output, the axis in [0, rank), or `Unsupported`."""

from __future__ import annotations

from collections.abc import Sequence

from smelt.ir.kernel import Unsupported


def axis_of(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise Unsupported(f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def axes_of(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """In the order given; naming an axis twice is an error in every op."""
    found = tuple(axis_of(a, rank) for a in axes)
    if len(set(found)) != len(found):
        raise Unsupported(f"axes {list(axes)} name an axis twice")
    return found
