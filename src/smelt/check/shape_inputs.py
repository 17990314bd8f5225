"""Contents for integer inputs that say how other tensors are shaped.

Input: a value that a node reads as a shape, a list of axes, a number of repeats ... Output: contents that make sense
there, or None. Invariant: declared shapes are respected where they tell; otherwise the contents change as little as
possible, so that the node takes any tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Final

import onnx_ir as ir

_FAR: Final = 1 << 30
Shape = tuple[int, ...]
SizesOf = Callable[[ir.Value], Sequence[int | None]]


def shape_like(value: ir.Value, count: int, sizes: SizesOf | None = None) -> list[int] | None:
    """`count` numbers for the first node that reads the value so. `sizes` are those of any value, where known."""
    for user, place in value.uses():
        if user.op_type == "GroupQueryAttention" and place in (5, 6) and sizes is not None:
            return [_keys(user, sizes) - (place == 5)] * count
        rule = _RULES.get((user.op_type, place))
        if rule is None and user.op_type.startswith("Reduce") and place == 1:
            rule = _reduced_axes
        if rule is not None:
            made = rule(user, count)
            return (made + [0] * count)[:count]
    return None


def _keys(node: ir.Node, sizes: SizesOf) -> int:
    """How many keys there are: those of the cache, and one for each row of the query."""
    query, past = node.inputs[0], node.inputs[3] if len(node.inputs) > 3 else None
    new: Sequence[int | None] = sizes(query) if query is not None else ()
    old: Sequence[int | None] = sizes(past) if past is not None else ()
    rows = new[1] if len(new) > 1 else None
    cached = old[2] if len(old) > 2 else None
    return (rows or 1) + (cached or 0)


def _static(value: ir.Value | None) -> Shape | None:
    if value is None or value.shape is None:
        return None
    dims = tuple(dim for dim in value.shape if isinstance(dim, int))
    return dims if len(dims) == len(value.shape) else None


def _both(node: ir.Node) -> tuple[Shape, Shape] | None:
    source, target = _static(node.inputs[0]), _static(node.outputs[0])
    return None if source is None or target is None else (source, target)


def _target(fill: int) -> Callable[[ir.Node, int], list[int]]:
    def rule(node: ir.Node, count: int) -> list[int]:
        return list(_static(node.outputs[0]) or [fill] * count)

    return rule


def _always(*numbers: int) -> Callable[[ir.Node, int], list[int]]:
    def rule(node: ir.Node, count: int) -> list[int]:
        del node
        return list(numbers) * count

    return rule


def _reshape(node: ir.Node, count: int) -> list[int]:
    target = _static(node.outputs[0])
    if target is not None:
        return list(target)
    source = node.inputs[0]
    rank = len(source.shape) if source is not None and source.shape is not None else 1
    return [0] * (count - 1) + [-1] if count <= rank else [0] * rank + [1] * (count - rank)


def _tile(node: ir.Node, count: int) -> list[int]:
    both = _both(node)
    return [2] * count if both is None else [o // max(i, 1) for i, o in zip(*both, strict=False)]


def _pads(node: ir.Node, count: int) -> list[int]:
    both = _both(node)
    if both is None:
        return [1] * count
    grown = [o - i for i, o in zip(*both, strict=False)]
    return [grow // 2 for grow in grown] + [grow - grow // 2 for grow in grown]


def _axes(node: ir.Node, count: int) -> list[int]:
    del node
    return list(range(count))


def _reduced_axes(node: ir.Node, count: int) -> list[int]:
    both = _both(node)
    if both is None:
        return list(range(count))
    source, target = both
    return next(
        (list(axes) for axes in _subsets(len(source), count) if _fits(source, target, axes)), list(range(count))
    )


def _subsets(rank: int, count: int) -> Sequence[tuple[int, ...]]:
    return list(combinations(range(rank), count)) if rank <= 8 else []


def _fits(source: Shape, target: Shape, axes: tuple[int, ...]) -> bool:
    """Whether reducing (or squeezing) `axes` of `source` gives `target`."""
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(source))
    gone = tuple(size for axis, size in enumerate(source) if axis not in axes)
    return target in (kept, gone)


def _unsqueezed_axes(node: ir.Node, count: int) -> list[int]:
    both = _both(node)
    if both is None:
        return list(range(count))
    source, target = both
    return next((list(a) for a in _subsets(len(target), count) if _fits(target, source, a)), list(range(count)))


def _axis_size(default: int, place: int = 0) -> Callable[[ir.Node, int], list[int]]:
    """The size that the declared output has along the node's axis."""

    def rule(node: ir.Node, count: int) -> list[int]:
        declared = _static(node.outputs[place])
        attribute = node.attributes.get("axis")
        axis = attribute.as_int() if attribute is not None else -1
        known = declared is not None and -len(declared) <= axis < len(declared)
        return [declared[axis] if known and declared is not None else default] * count

    return rule


def _split_sizes(node: ir.Node, count: int) -> list[int]:
    attribute = node.attributes.get("axis")
    axis = attribute.as_int() if attribute is not None else 0
    shapes = [_static(value) for value in node.outputs]
    return [shape[axis] if shape else 1 for shape in shapes][:count]


_RULES: Final[dict[tuple[str, int], Callable[[ir.Node, int], list[int]]]] = {
    ("Reshape", 1): _reshape,
    ("Expand", 1): _target(1),
    ("ConstantOfShape", 0): _target(2),
    ("Tile", 1): _tile,
    ("Pad", 1): _pads,
    ("Slice", 1): _always(0),
    ("Slice", 2): _always(_FAR),
    ("Slice", 3): _axes,
    ("Slice", 4): _always(1),
    ("Squeeze", 1): _reduced_axes,
    ("Unsqueeze", 1): _unsqueezed_axes,
    ("CumSum", 1): _always(0),
    ("TopK", 1): _axis_size(1),
    ("OneHot", 1): _axis_size(5),
    ("Split", 1): _split_sizes,
    ("Range", 0): _always(0),
    ("Range", 1): _always(5),
    ("Range", 2): _always(1),
    ("Trilu", 1): _always(1),
}
