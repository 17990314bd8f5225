"""Reading and writing at indices.

Input: calls. Output: values. Invariant: negative indices count from the end, as in torch; ONNX's Gather and Scatter ops
take them so too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from smelt.export.aten.order_statistics import ordered
from smelt.export.call import Call
from smelt.export.dtypes import BOOL, FLOAT, INT64
from smelt.export.records import Refused
from smelt.export.registry import converter
from smelt.export.sizes import Dim

Value = ir.Value


@converter("aten::embedding")
def embedding(
    call: Call, weight: Value, indices: Value, padding_idx: int = -1,
) -> Value:  # fmt: skip
    return call.op("Gather", weight, indices, axis=0)


@converter("aten::index_select")
def index_select(call: Call, self: Value, dim: int, index: Value) -> Value:
    if not call.rank(self):
        return self
    flat = index if call.rank(index) else call.op("Unsqueeze", index, [0])
    return call.op("Gather", self, flat, axis=call.axis(self, dim))


@converter("aten::gather")
def gather(call: Call, self: Value, dim: int, index: Value) -> Value:
    if not call.rank(self):
        return self if not call.rank(index) else call.expand(self, call.all_dims(index))
    if not call.rank(index):
        return call.op("Squeeze", call.op("GatherElements", self, call.op("Unsqueeze", index, [0]), axis=0), [0])
    return call.op("GatherElements", self, index, axis=call.axis(self, dim))


@converter("aten::take")
def take(call: Call, self: Value, index: Value) -> Value:
    return call.op("Gather", call.op("Reshape", self, [-1], shape=[None]), index, axis=0)


@converter("aten::take_along_dim")
def take_along_dim(call: Call, self: Value, indices: Value, dim: int | None = None) -> Value:
    if dim is not None:
        raise Refused("take_along_dim broadcasts; its decomposition says how")
    flat = [call.op("Reshape", x, [-1], shape=[None]) for x in (self, indices)]
    return call.op("GatherElements", *flat, axis=0)


@converter("aten::index.Tensor", "aten::_unsafe_index.Tensor")
def index(call: Call, self: Value, indices: Sequence[Value | None]) -> Value:
    if any(i is not None and i.dtype in (BOOL, ir.DataType.UINT8) for i in indices):
        return _by_mask(call, self, indices)
    places = [(axis, i) for axis, i in enumerate(indices) if i is not None]
    if not places:
        return self
    if len(places) == 1:
        axis, single = places[0]
        return call.op("Gather", self, single, axis=axis)
    return _by_many(call, self, places)


def _by_many(call: Call, self: Value, places: list[tuple[int, Value]]) -> Value:
    """Several indices broadcast together; their axes come first for GatherND and go back where torch puts them."""
    axes = [axis for axis, _ in places]
    rest = [axis for axis in range(call.rank(self)) if axis not in axes]
    order = [*axes, *rest]
    moved = self if order == sorted(order) else call.op("Transpose", self, perm=order)
    joined, rank = stacked_indices(call, [value for _, value in places])
    found = call.op("GatherND", moved, joined)
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    if not adjacent or axes[0] == 0:
        return found
    before = axes[0]
    back = [*range(rank, rank + before), *range(rank), *range(rank + before, rank + len(rest))]
    return call.op("Transpose", found, perm=back)


def stacked_indices(call: Call, indices: Sequence[Value]) -> tuple[Value, int]:
    """Index tensors, broadcast to one shape and joined on a new last axis; the rank before that."""
    rank = max(call.rank(i) for i in indices)
    longs = [call.cast(i, INT64) for i in indices]
    total = longs[0]
    for other in longs[1:]:
        total = call.op("Add", total, other)
    shape = call.op("Shape", total, shape=[rank])
    same = len({tuple(map(str, i.shape.dims)) for i in longs if i.shape is not None}) == 1
    wide = longs if same else [call.op("Expand", i, shape) for i in longs]
    return call.op("Concat", *(call.op("Unsqueeze", i, [rank]) for i in wide), axis=-1), rank


def _by_mask(call: Call, self: Value, indices: Sequence[Value | None]) -> Value:
    """One mask over leading axes: the elements where it holds."""
    if len(indices) != 1 or indices[0] is None:
        raise Refused("a mask among other indices")
    mask = call.cast(indices[0], BOOL)
    places = call.op("Transpose", call.op("NonZero", mask), perm=[1, 0])
    return call.op("GatherND", self, places)


@converter("aten::masked_select")
def masked_select(call: Call, self: Value, mask: Value) -> Value:
    both = call.op("Add", call.cast(mask, INT64), call.op("Mul", call.cast(call.cast(self, BOOL), INT64), 0))
    shape = call.op("Shape", both, shape=[None])
    wide, held = call.op("Expand", self, shape), call.op("Expand", mask, shape)
    flat = [call.op("Reshape", x, [-1], shape=[None]) for x in (wide, held)]
    return call.op("Compress", *flat, axis=0)


@converter("aten::nonzero", "aten::argwhere")
def nonzero(call: Call, self: Value) -> Value:
    if not call.rank(self):  # a row of no columns where the number is not zero
        found = call.op("NonZero", call.reshape(self, [1]))
        return call.op("Slice", call.op("Transpose", found, perm=[1, 0]), [0], [0], [1])
    return call.op("Transpose", call.op("NonZero", self), perm=[1, 0])


@converter("aten::nonzero_static")
def nonzero_static(call: Call, self: Value, size: Any, fill_value: int = -1) -> Value:
    """The first `size` places, filled up where there are fewer."""
    rank = call.rank(self)
    if not rank or not isinstance(size, int):
        raise Refused("a list of places whose length is not known, or of a 0-d tensor")
    found = call.op("Transpose", call.op("NonZero", self), perm=[1, 0])
    longer = call.op("Concat", found, call.filled([size, rank], fill_value, INT64), axis=0)
    return call.op("Slice", longer, [0], [size], [0])


@converter("aten::scatter.src", "aten::scatter.value", "aten::scatter.reduce", "aten::scatter.value_reduce")
def scatter(
    call: Call, self: Value, dim: int, index: Value, src: Any = None, value: Any = None, reduce: str | None = None
) -> Value:
    updates = src if src is not None else call.filled(call.shape_of(index), value, self.dtype)
    kind = {None: "none", "add": "add", "multiply": "mul"}[reduce]
    return scattered(call, self, dim, index, updates, kind)


@converter("aten::scatter_add")
def scatter_add(call: Call, self: Value, dim: int, index: Value, src: Value) -> Value:
    return scattered(call, self, dim, index, src, "add")


def scattered(call: Call, self: Value, dim: int, index: Value, src: Value, kind: str) -> Value:
    if not call.rank(self):
        parts = [call.reshape(each, [1]) for each in (self, index, src)]
        return call.reshape(scattered(call, parts[0], 0, parts[1], parts[2], kind), [])
    if not call.rank(index):
        index, src = call.reshape(index, [1]), call.reshape(src, [1])
    updates = _cut(call, call.cast(src, self.dtype), index)
    return call.op("ScatterElements", self, call.cast(index, INT64), updates, axis=call.axis(self, dim), reduction=kind)


def _cut(call: Call, src: Value, index: Value) -> Value:
    """torch reads only as much of the source as there are indices."""
    if call.all_dims(src) == call.all_dims(index):
        return src
    rank = call.rank(index)
    return call.op("Slice", src, [0] * rank, call.shape_of(index), list(range(rank)))


@converter("aten::index_put", "aten::_unsafe_index_put")
def index_put(
    call: Call, self: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> Value:
    if any(i is None for i in indices):
        return _put_at_axes(call, self, indices, values, accumulate)
    given = [i for i in indices if i is not None]
    if any(i.dtype in (BOOL, ir.DataType.UINT8) for i in given):
        return _put_by_mask(call, self, given, values, accumulate)
    places, rank = stacked_indices(call, given)
    shape = call.op("Concat", call.op("Shape", places, end=rank), _tail(call, self, len(given)), axis=0)
    updates = call.op("Expand", call.cast(values, self.dtype), shape)
    return call.op("ScatterND", self, places, updates, reduction="add" if accumulate else "none")


def _tail(call: Call, self: Value, start: int) -> Value:
    return call.vector([call.dim(self, axis) for axis in range(start, call.rank(self))])


def _put_at_axes(call: Call, self: Value, indices: Sequence[Value | None], values: Value, accumulate: bool) -> Value:
    """Indexed axes to the front, put, and back. Values broadcast as torch's result of indexing is laid out."""
    axes = [axis for axis, i in enumerate(indices) if i is not None]
    given = [i for i in indices if i is not None]
    if not axes or any(i.dtype in (BOOL, ir.DataType.UINT8) for i in given):
        raise Refused("a mask among whole axes")
    rest = [axis for axis in range(call.rank(self)) if axis not in axes]
    order = [*axes, *rest]
    moved = call.op("Transpose", self, perm=order)
    places, rank = stacked_indices(call, given)
    front = call.op("Shape", places, end=rank)
    wide = call.cast(values, self.dtype)
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    if adjacent and axes[0]:
        wide = _led(call, wide, self, axes[0], rank, front, rest)
    shape = call.op("Concat", front, call.vector([call.dim(self, axis) for axis in rest]), axis=0)
    updates = call.op("Expand", wide, shape)
    put = call.op("ScatterND", moved, places, updates, reduction="add" if accumulate else "none")
    return call.op("Transpose", put, perm=[order.index(axis) for axis in range(len(order))])


def _led(call: Call, values: Value, self: Value, before: int, rank: int, front: Value, rest: Sequence[int]) -> Value:
    """Values laid out as (axes before, indices, axes after) -> (indices, axes before, axes after)."""
    head = call.vector([call.dim(self, axis) for axis in rest[:before]])
    pieces = [head, front]
    if len(rest) > before:
        pieces.append(call.vector([call.dim(self, axis) for axis in rest[before:]]))
    wide = call.op("Expand", values, call.op("Concat", *pieces, axis=0))
    total = rank + len(rest)
    return call.op(
        "Transpose", wide, perm=[*range(before, before + rank), *range(before), *range(before + rank, total)]
    )


def _put_by_mask(call: Call, self: Value, given: Sequence[Value], values: Value, accumulate: bool) -> Value:
    """A single value under a mask is a choice; a row per hit is scattered."""
    if len(given) != 1:
        raise Refused("several masks")
    mask = call.cast(given[0], BOOL)
    missing = call.rank(self) - call.rank(mask)
    if call.rank(values) == 0 or all(size == 1 for size in call.all_dims(values)):
        single = call.cast(call.reshape(values, []), self.dtype)
        wide = call.op("Unsqueeze", mask, [call.rank(mask) + i for i in range(missing)]) if missing else mask
        return call.op("Where", wide, call.op("Add", self, single) if accumulate else single, self)
    places = call.op("Transpose", call.op("NonZero", mask), perm=[1, 0])
    front = call.op("Shape", places, end=1)
    shape = call.op("Concat", front, _tail(call, self, call.rank(mask)), axis=0)
    updates = call.op("Expand", call.cast(values, self.dtype), shape)
    return call.op("ScatterND", self, places, updates, reduction="add" if accumulate else "none")


@converter("aten::index_add")
def index_add(call: Call, self: Value, dim: int, index: Value, source: Value, alpha: Any = 1) -> Value:
    updates = call.cast(source)
    updates = updates if alpha == 1 else call.op("Mul", updates, call.scalar(alpha))
    return _along(call, self, dim, index, updates, "add")


@converter("aten::index_copy")
def index_copy(call: Call, self: Value, dim: int, index: Value, source: Value) -> Value:
    updates = call.cast(source, self.dtype)
    if not call.rank(self) or not call.rank(index) or call.axis(self, dim) == 0:
        return _along(call, self, dim, index, updates, "none")
    axis = call.axis(self, dim)  # as it lies, which a cache may be written so in its own memory
    places = call.op("Unsqueeze", call.cast(index, INT64), [a for a in range(call.rank(self)) if a != axis])
    spread = call.op("Expand", places, call.shape_of(updates), shape=updates.shape)
    return call.op("ScatterElements", self, spread, updates, axis=axis, shape=self.shape)


@converter("aten::index_fill.int_Scalar", "aten::index_fill.int_Tensor")
def index_fill(call: Call, self: Value, dim: int, index: Value, value: Any) -> Value:
    if not call.rank(self):
        raise Refused("index_fill of a 0-d tensor")
    axis = call.axis(self, dim)
    flat = index if call.rank(index) else call.op("Unsqueeze", index, [0])
    dims = [*call.all_dims(self)[:axis], call.dim(flat, 0), *call.all_dims(self)[axis + 1 :]]
    return _along(call, self, dim, flat, call.filled(dims, value, self.dtype), "none")


def _along(call: Call, self: Value, dim: int, index: Value, updates: Value, kind: str) -> Value:
    """Slices of one axis: the axis goes to the front for ScatterND and back."""
    if not call.rank(self) or not call.rank(index):
        raise Refused("indexing of 0-d tensors")
    axis = call.axis(self, dim)
    places = call.op("Unsqueeze", call.cast(index, INT64), [1])
    order = [axis, *(a for a in range(call.rank(self)) if a != axis)]
    if axis == 0:
        return call.op("ScatterND", self, places, updates, reduction=kind)
    moved, wide = call.op("Transpose", self, perm=order), call.op("Transpose", updates, perm=order)
    back = [order.index(a) for a in range(len(order))]
    return call.op("Transpose", call.op("ScatterND", moved, places, wide, reduction=kind), perm=back)


@converter("aten::select_scatter")
def select_scatter(call: Call, self: Value, src: Value, dim: int, index: Dim) -> Value:
    axis = call.axis(self, dim)
    return _along(call, self, axis, call.vector([index]), call.op("Unsqueeze", call.cast(src), [axis]), "none")


@converter("aten::slice_scatter")
def slice_scatter(
    call: Call, self: Value, src: Value, dim: int = 0, start: Dim = None, end: Dim = None, step: Dim = 1
) -> Value:
    """Written at the places that the slice reads."""
    axis = call.axis(self, dim)
    size = call.dim(self, axis)
    if (
        (start in (None, 0))
        and (end is None or end == size or (isinstance(end, int) and end >= (1 << 62)))
        and step == 1
    ):
        return call.expand(call.cast(src), call.all_dims(self))
    stop = (1 << 63) - 1 if end is None else end
    counted = call.op("Range", call.scalar(0, INT64), call.scalar(size, INT64), call.scalar(1, INT64), shape=[None])
    places = call.op("Slice", counted, call.vector([start or 0]), call.vector([stop]), [0], call.vector([step]))
    return _along(call, self, axis, places, call.cast(src), "none")


@converter("aten::topk")
def topk(call: Call, self: Value, k: Dim, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if not call.rank(self):
        return self, call.constant(0, INT64)
    axis = call.axis(self, dim)
    return call.op("TopK", self, call.vector([k]), axis=axis, largest=int(largest), sorted=int(sorted), outputs=2)


@converter("aten::sort", "aten::sort.stable")
def sort(call: Call, self: Value, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Any:
    if not call.rank(self):
        return self, call.constant(0, INT64)
    return ordered(call, self, call.axis(self, dim), descending=descending)


@converter("aten::argsort", "aten::argsort.stable")
def argsort(call: Call, self: Value, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Value:
    return sort(call, self, dim, descending, stable)[1]


@converter("aten::bucketize.Tensor", "aten::bucketize.Scalar", "aten::searchsorted.Tensor", "aten::searchsorted.Scalar")
def bucketize(call: Call) -> Value:
    """The number of boundaries below (or, from the right, not above) each value; a NaN is above all."""
    a = call.arguments
    values, bounds = a["self"], a.get("boundaries") or a["sorted_sequence"]
    if a.get("sorter") is not None:
        bounds = call.op("GatherElements", bounds, call.cast(a["sorter"], INT64), axis=-1)
    if not isinstance(values, ir.Value):
        values = call.scalar(values, FLOAT if isinstance(values, float) else INT64)
    edges = bounds if call.rank(bounds) == 1 else call.op("Unsqueeze", bounds, [-2])
    right = a.get("right", False) or a.get("side") == "right"
    left, edges = call.promoted(call.op("Unsqueeze", values, [-1]), edges)
    below = call.op("Not", call.op("Less" if right else "LessOrEqual", left, edges))
    return call.op("ReduceSum", call.cast(below, INT64), [-1], keepdims=0)
