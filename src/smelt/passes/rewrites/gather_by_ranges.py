"""Mask building: an index of ranges -> the indexed tensor itself, or the part of it that they reach.

Input: GatherND over indices that are ranges from 0 to the sizes of the leading axes, spread over axes of their own, as
`mask[batch_index, key_index]` comes out of PyTorch; or over constants that name all elements in order, which is what
remains of such ranges where sizes are fixed. Output: the tensor with other axes, cut to the range where that may end
before its axis does. Invariant: the axes keep their order, and every axis is indexed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from smelt.passes.rewriter.rules import Rewrite, Rule
from smelt.passes.rewriter.surgery import input_at, int_attribute, is_op
from smelt.passes.simplify_shapes import Element, dimension

Array = np.ndarray[Any, Any]
_LARGEST: Final = 1 << 22  # elements of an index that is looked at


def _apply(node: ir.Node, rewrite: Rewrite) -> ir.Value | None:
    """GatherND by ranges over whole axes (mask building) -> Unsqueeze"""
    data, indices = node.inputs[:2]
    if data is None or indices is None or int_attribute(node, "batch_dims", 0):
        return None
    fixed = rewrite.array(indices, _LARGEST)
    if fixed is not None and _names_all(data, fixed):
        return rewrite.op("Reshape", data, rewrite.constant(fixed.shape[:-1]), like=node.outputs[0])
    return _by_ranges(node, data, indices, rewrite)


def _names_all(data: ir.Value, indices: Array) -> bool:
    """Whether the indices are those of all elements of the data, in the order in which they lie."""
    sizes = [size for size in data.shape or () if isinstance(size, int)]
    if data.shape is None or len(sizes) != data.shape.rank():
        return False
    count = math.prod(sizes)
    if not sizes or not count or indices.shape[-1] != len(sizes) or indices.size != count * len(sizes):
        return False
    wanted = np.stack(np.unravel_index(np.arange(count), sizes), axis=-1)
    given = indices.reshape(wanted.shape)
    return bool(np.array_equal(np.where(given < 0, given + np.asarray(sizes), given), wanted))


def _by_ranges(node: ir.Node, data: ir.Value, indices: ir.Value, rewrite: Rewrite) -> ir.Value | None:
    concat = indices.producer()
    out = node.outputs[0].shape
    if data.shape is None or out is None or concat is None or not is_op(concat, "Concat"):
        return None
    if len(concat.inputs) != data.shape.rank():
        return None
    single = [axis for axis, part in enumerate(concat.inputs) if data.shape[axis] == 1 and _is_one_place(part)]
    ranges = [(axis, part) for axis, part in enumerate(concat.inputs) if axis not in single]
    places = [_place(part, data, axis, out.rank(), rewrite) for axis, part in ranges]
    known = [place.axis for place in places if place is not None]
    if len(known) != len(places) or known != sorted(set(known)):
        return None
    data = _cut(data, [(axis, place.end) for (axis, _), place in zip(ranges, places, strict=True) if place], rewrite)
    new = [axis for axis in range(out.rank()) if axis not in known]
    if single:
        left = ir.Shape([size for axis, size in enumerate(data.shape or ()) if axis not in single])
        squeezed: ir.Value = rewrite.op("Squeeze", data, rewrite.constant(single))
        data, squeezed.type, squeezed.shape = squeezed, data.type, left
    return rewrite.op("Unsqueeze", data, rewrite.constant(new), like=node.outputs[0]) if new else data


def _is_one_place(part: ir.Value | None) -> bool:
    """Whether an index is the same everywhere: of an axis of size 1 it can only name the one element."""
    value = _source(part, "Unsqueeze")
    value = _source(value, "Expand") or value
    return value is not None and value.shape is not None and all(size == 1 for size in value.shape)


def _place(part: ir.Value | None, data: ir.Value, axis: int, rank: int, rewrite: Rewrite) -> _Place | None:
    """The axis of the result along which the range runs, if it runs over all of the data's axis."""
    value = _source(part, "Unsqueeze")
    value = _source(value, "Expand") or value
    shape = value.shape if value is not None else None
    if value is None or shape is None or shape.rank() > rank:
        return None
    wide = [at + rank - shape.rank() for at, size in enumerate(shape) if size != 1]
    counted = _range_of(value)
    if len(wide) != 1 or counted is None:
        return None
    node = counted.producer()
    assert node is not None
    if rewrite.number(node.inputs[0]) != 0 or rewrite.number(node.inputs[2]) != 1:
        return None
    limit = _limit(node.inputs[1], rewrite)
    if _same(limit, dimension(data, axis)):
        return _Place(wide[0], None)
    end = node.inputs[1]
    hinted = isinstance(limit, _Axis) and limit.name is not None and limit.name == _name(data, axis)
    return _Place(wide[0], end) if hinted and end is not None and end.dtype == ir.DataType.INT64 else None


@dataclass(frozen=True)
class _Place:
    """The axis of the result, and where the range ends if that may be before the end of the data's axis."""

    axis: int
    end: ir.Value | None


@dataclass(frozen=True)
class _Axis:
    """An axis that a number was read from: its size or identity, and what the file calls it."""

    size: Element
    name: str | None


def _name(value: ir.Value, axis: int) -> str | None:
    dim = value.shape[axis] if value.shape is not None and axis < value.shape.rank() else None
    return dim.value if isinstance(dim, ir.SymbolicDim) else None


def _cut(data: ir.Value, ends: Sequence[tuple[int, ir.Value | None]], rewrite: Rewrite) -> ir.Value:
    """A range that goes beyond its axis is an error of the model, so that what is left is what it names."""
    for axis, end in ends:
        if end is not None:
            stop = rewrite.op("Reshape", end, rewrite.constant([1]))
            stop.type, stop.shape = end.type, ir.Shape([1])
            cut = rewrite.op("Slice", data, rewrite.constant([0]), stop, rewrite.constant([axis]))
            cut.type, cut.shape = data.type, data.shape
            data = cut
    return data


def _source(value: ir.Value | None, op_type: str) -> ir.Value | None:
    node = value.producer() if value is not None else None
    return input_at(node, 0) if node is not None and is_op(node, op_type) else None


def _range_of(value: ir.Value) -> ir.Value | None:
    """The Range whose elements a value holds in a row, only its axes changed."""
    while (node := value.producer()) is not None:
        if is_op(node, "Range"):
            return value
        if not is_op(node, "Unsqueeze", "Reshape", "Squeeze") or node.inputs[0] is None:
            return None
        value = node.inputs[0]
    return None


def _limit(value: ir.Value | None, rewrite: Rewrite) -> int | _Axis | None:
    """The size that a number is read from."""
    node = value.producer() if value is not None else None
    while node is not None and is_op(node, "Squeeze", "Unsqueeze", "Reshape", "Identity"):
        value = node.inputs[0]
        node = value.producer() if value is not None else None
    if node is None:
        number = rewrite.number(value)
        return None if number is None else int(number)
    index = rewrite.number(node.inputs[1]) if is_op(node, "Gather") else 0
    shape = node.inputs[0].producer() if is_op(node, "Gather") and node.inputs[0] is not None else node
    source = shape.inputs[0] if shape is not None and is_op(shape, "Shape") else None
    if index is None or shape is None or source is None or source.shape is None:
        return None
    axes = range(source.shape.rank())[int_attribute(shape, "start", 0) : int_attribute(shape, "end", 1 << 31)]
    if not -len(axes) <= index < len(axes) or (shape is node and len(axes) != 1):
        return None
    return _Axis(dimension(source, axes[int(index)]), _name(source, axes[int(index)]))


def _same(limit: int | _Axis | None, other: Element) -> bool:
    """Equal numbers, or sizes of which it was derived that they are equal."""
    size = limit.size if isinstance(limit, _Axis) else limit
    return size is not None and size == other


GATHER_BY_RANGES = Rule("gather-by-ranges", _apply, frozenset(("GatherND",)), ("default", "training"))
