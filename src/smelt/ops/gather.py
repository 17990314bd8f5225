"""Elements chosen by index tensors.

Input: a node with integer operands. Output: a view whose index is read from data, wrapped when negative and checked at
run time. Invariant: an index known at compile time becomes a plain index; one that is out of range is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from smelt.ir.kernel import Expr, Ix, Tensor, Unsupported, fn, ix
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.index import nonneg
from smelt.ops.axes import axis_of
from smelt.ops.movement import values_or_refuse
from smelt.ops.registry import Call, op

KNOWN_INDICES = 64


def _check_indices(indices: Tensor) -> None:
    if indices.dtype not in ("i32", "i64"):
        raise Unsupported(f"indices are {indices.dtype}, not int32 or int64")


def known_index(call: Call, indices: Tensor, extent: Ix) -> Ix | None:
    """The index of a single-element operand when it is a size expression, with its range checked once."""
    if indices.elements.const != 1:
        return None
    found = call.k.values(indices)
    if found is None:
        return None
    place = found[0]
    if place.const is None or extent.const is None:
        if not nonneg(place):
            place = fn("sel", fn("lt", place, 0), place + extent, place)
            if not nonneg(place):
                call.k.require_equal(fn("lt", place, 0), 0, "an index is out of range")
        call.k.require_equal(fn("lt", place, extent), 1, "an index is out of range")
        return place
    if not -extent.const <= place.const < extent.const:
        raise Unsupported(f"index {place.const} is out of range for an axis of size {extent.const}")
    return ix(place.const % extent.const)


def _check_constants(call: Call, indices: Tensor, extent: Ix) -> None:
    """Refuse constants that no run could accept."""
    count = indices.elements.const
    if extent.const is None or count is None or count > KNOWN_INDICES:
        return
    for value in call.k.values(indices) or ():
        if value.const is not None and not -extent.const <= value.const < extent.const:
            raise Unsupported(f"index {value.const} is out of range for an axis of size {extent.const}")


@op("Gather", since=1, kind="movement")
def gather(call: Call) -> Tensor:
    x, indices = call.x(0), call.x(1)
    _check_indices(indices)
    axis = axis_of(call.int("axis", 0), x.rank)
    extent = x.shape[axis]
    _check_constants(call, indices, extent)
    place = known_index(call, indices, extent)
    if place is None:
        return call.k.gather(x, indices, axis)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    after = axis + indices.rank
    return call.k.view(x, shape, lambda w: [*w[:axis], place, *w[after:]])


@op("GatherElements", since=11, kind="movement")
def gather_elements(call: Call) -> Tensor:
    x, indices = call.x(0), call.x(1)
    _check_indices(indices)
    if indices.rank != x.rank:
        raise Unsupported(f"indices have rank {indices.rank} and the data has rank {x.rank}")
    axis = axis_of(call.int("axis", 0), x.rank)
    for d, (requested, size) in enumerate(zip(indices.shape, x.shape, strict=True)):
        if d != axis:
            call.k.require_equal(fn("lt", size, requested), 0, "indices reach beyond the data")
    _check_constants(call, indices, x.shape[axis])

    def back(w: tuple[Ix, ...]) -> list[Ix]:
        place = call.k.data_index(indices.at(w), x.shape[axis])
        return [place if d == axis else i for d, i in enumerate(w)]

    return call.k.view(x, indices.shape, back)


@op("GatherND", since=11, kind="movement")
def gather_nd(call: Call) -> Tensor:
    x, indices = call.x(0), call.x(1)
    if indices.dtype != "i64":
        raise Unsupported(f"indices are {indices.dtype}, not int64")
    batch = call.int("batch_dims", 0) if call.opset >= 12 else 0
    if not 0 <= batch < min(x.rank, indices.rank):
        raise Unsupported(f"batch_dims {batch} is out of range for ranks {x.rank} and {indices.rank}")
    depth = indices.shape[-1].const
    if depth is None or not 1 <= depth <= x.rank - batch:
        raise Unsupported("the length of an index is unknown or does not fit the data's rank")
    for d in range(batch):
        call.k.require_equal(x.shape[d], indices.shape[d], "batch dimensions must agree")
    lead = indices.rank - 1

    def back(w: tuple[Ix, ...]) -> list[Ix]:
        places = [_component(call, indices, w[:lead], k, x.shape[batch + k]) for k in range(depth)]
        return [*w[:batch], *places, *w[lead:]]

    return call.k.view(x, (*indices.shape[:-1], *x.shape[batch + depth :]), back)


def _component(call: Call, indices: Tensor, row: Sequence[Ix], k: int, extent: Ix) -> Ix:
    return call.k.data_index(indices.at([*row, k]), extent)


@op("OneHot", since=9, kind="movement")
def one_hot(call: Call) -> Tensor:
    indices, values = call.x(0), call.x(2)
    rank = indices.rank + 1
    axis = axis_of(call.int("axis", -1), rank)
    depth = _depth(call)
    call.k.require_equal(values.elements, 2, "off and on are two values")
    where = call.k.unsqueeze(indices, [axis])
    positions = call.k.iota((*indices.shape[:axis], depth, *indices.shape[axis:]), axis)

    def hit(index: Expr, position: Expr) -> Expr:
        index = E.cast(index, "i64")
        wrapped = E.select(E.op("lt", index, E.const(0, "i64")), E.op("add", index, E.index(depth)), index)
        return E.op("eq", wrapped, position)

    chosen = call.k.map(hit, where, positions)
    off, on = (call.k.view(values, (), lambda _, at=k: [at]) for k in (0, 1))
    return call.k.map(E.select, chosen, on, off)


def _depth(call: Call) -> Ix:
    """A scalar or a single element; a constant may be of any numeric type."""
    depth = call.x(1)
    if depth.elements.const != 1:
        raise Unsupported("depth is not a single number")
    element = depth.at([0] * depth.rank)
    if isinstance(element.kind, E.Const):
        size = ix(int(element.kind.value))
    else:
        size = values_or_refuse(call, 1)[0]
    if size.const is not None and size.const < 1:
        raise Unsupported(f"depth is {size.const}")
    if size.const is None:
        call.k.require_equal(fn("lt", size, 1), 0, "depth must be positive")
    return size


@op("ReverseSequence", since=10, kind="movement")
def reverse_sequence(call: Call) -> Tensor:
    x, lengths = call.x(0), call.x(1)
    time, batch = call.int("time_axis", 0), call.int("batch_axis", 1)
    if x.rank < 2 or {time, batch} != {0, 1}:
        raise Unsupported("time and batch axes must be 0 and 1, in either order")
    if lengths.rank != 1 or lengths.dtype != "i64":
        raise Unsupported("sequence lengths must be a vector of int64")
    call.k.require_equal(lengths.shape[0], x.shape[batch], "there must be one length per batch entry")

    def back(w: tuple[Ix, ...]) -> list[Ix]:
        length, step = lengths.at([w[batch]]), E.index(w[time])
        mirrored = E.op("sub", E.op("sub", length, E.const(1, "i64")), step)
        place = E.select(E.op("lt", step, length), mirrored, step)
        return [call.k.data_index(place, x.shape[time]) if d == time else i for d, i in enumerate(w)]

    return call.k.view(x, x.shape, back)
