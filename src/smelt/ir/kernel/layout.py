"""Row-major layout: strides, flat places, and regrouping of axes without changing the order of elements.

Input: shapes and indices of `Ix`. Output: the same. Invariant: a reshape maps every index to the element at the same
flat place.
"""

from __future__ import annotations

from collections.abc import Sequence

from .index import Ix, IxLike, exact_div, ix

Index = tuple[Ix, ...]


def strides(shape: Sequence[IxLike]) -> list[Ix]:
    out: list[Ix] = []
    step = ix(1)
    for size in reversed(shape):
        out.append(step)
        step = step * size
    return out[::-1]


def flat(index: Sequence[Ix], shape: Sequence[Ix]) -> Ix:
    total = ix(0)
    for i, step in zip(index, strides(shape), strict=True):
        total = total + i * step
    return total


def unflat(place: Ix, shape: Sequence[Ix]) -> Index:
    out: list[Ix] = []
    for size in reversed(shape):
        out.append(place % size)
        place = place // size
    return tuple(out[::-1])


Group = tuple[int, int, int, int]


def axis_groups(old: Index, new: Index) -> list[Group]:
    """Cut two shapes of the same element count into runs of axes with equal products, as fine as provable."""
    groups: list[Group] = []
    i = j = 0
    while i < len(old) or j < len(new):
        group = _next_group(old, new, i, j)
        groups.append(group)
        i, j = group[1], group[3]
    return groups


def _next_group(old: Index, new: Index, i: int, j: int) -> Group:
    left = right = ix(1)
    a, b = i, j
    while True:
        if a > i and b > j and left == right:
            return i, a, j, b
        grow_left = b >= len(new) or (a < len(old) and (a == i or _smaller(left, right)))
        if grow_left and a < len(old):
            left, a = left * old[a], a + 1
        elif b < len(new):
            right, b = right * new[b], b + 1
        else:
            return i, len(old), j, len(new)


def _smaller(left: Ix, right: Ix) -> bool:
    """Which side to grow: the one that divides the other."""
    if exact_div(right, left) is not None:
        return True
    return exact_div(left, right) is None and len(left.key) < len(right.key)


def regroup(w: Index, groups: Sequence[Group], old: Index, new: Index) -> Index:
    out: list[Ix] = []
    for i, a, j, b in groups:
        if a - i == b - j == 1:
            out.append(w[j])
        else:
            out.extend(_unflat_ranged(flat(w[j:b], new[j:b]), old[i:a]))
    return tuple(out)


def _unflat_ranged(place: Ix, shape: Index) -> Index:
    """Like _unflat, but the leading axis needs no remainder."""
    out: list[Ix] = []
    for axis in range(len(shape) - 1, 0, -1):
        out.append(place % shape[axis])
        place = place // shape[axis]
    return (place, *out[::-1]) if shape else ()
