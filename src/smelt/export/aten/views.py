"""Shapes, layouts and copies: what moves data and computes nothing.

Input: calls. Output: values. Invariant: copies, clones and layout hints vanish; the sizes of the result come from the
FX graph where it knows them, so that no arithmetic is repeated in the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import onnx_ir as ir

from smelt.export.call import Call
from smelt.export.dtypes import to_onnx
from smelt.export.records import Refused
from smelt.export.registry import converter
from smelt.export.sizes import Dim

Value = ir.Value
_END: Final = (1 << 63) - 1
_MODES: Final = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@converter(
    "aten::alias", "aten::detach", "aten::clone", "aten::contiguous", "aten::lift_fresh_copy", "aten::lift_fresh",
    "aten::positive", "aten::resolve_conj", "aten::resolve_neg", "aten::alias_copy", "aten::detach_copy",
    "prims::device_put",
    complex=True,
)  # fmt: skip
def same(call: Call) -> Value:
    return call.arguments["self"] if "self" in call.arguments else call.arguments["a"]


@converter("aten::conj", "aten::_conj", "aten::conj_physical", "aten::_conj_physical", complex=True)
def conj(call: Call, self: Value) -> Value:
    return call.op("Mul", self, call.constant([1, -1], self.dtype)) if call.complex else self


@converter("aten::real")
def real(call: Call, self: Value) -> Value:
    """Of real tensors: complex ones are not offered to the table."""
    return self


@converter("aten::dropout", "aten::feature_dropout", "aten::alpha_dropout", "aten::feature_alpha_dropout")
def dropout(call: Call, input: Value, p: float, train: bool) -> Value:
    if train and p != 0:
        raise Refused("dropout in training mode is random")
    return input


@converter(
    "aten::_to_copy",
    "aten::to.dtype",
    "aten::to.dtype_layout",
    "aten::to.device",
    "aten::to.other",
    "aten::to.prim_dtype",
)
def to(call: Call, self: Value) -> Value:
    return call.cast(self)


@converter("aten::type_as", "prims::convert_element_type")
def type_as(call: Call) -> Value:
    return call.cast(call.arguments["self"] if "self" in call.arguments else call.arguments["a"])


@converter("aten::copy")
def copy(call: Call, self: Value, src: Value) -> Value:
    return call.expand(call.cast(src), call.all_dims(self))


@converter("aten::view.dtype")
def view_dtype(call: Call, self: Value, dtype: Any) -> Value:
    if to_onnx(dtype) != self.dtype:
        raise Refused("ONNX cannot reinterpret bits")
    return self


@converter(
    "aten::view", "aten::reshape", "aten::_unsafe_view", "aten::view_copy", "aten::_reshape_alias",
    "aten::_reshape_copy",
)  # fmt: skip
def reshape(call: Call) -> Value:
    return _reshaped(call, call.arguments["self"], call.arguments.get("size") or call.arguments.get("shape") or [])


def _reshaped(call: Call, self: Value, asked: Sequence[Dim]) -> Value:
    """To the sizes of the result; where only the arguments are known, to those."""
    known = call.outs[0].dims
    return call.reshape(self, known if all(dim is not None for dim in known) else asked, asked)


@converter("aten::view_as", "aten::reshape_as", "aten::flatten.using_ints", "aten::unflatten.int", "aten::ravel")
def to_result_sizes(call: Call) -> Value:
    return call.reshape(call.arguments["self"], call.dims)


@converter("aten::squeeze", "aten::squeeze.dim", "aten::squeeze.dims", "aten::squeeze_copy", "aten::squeeze_copy.dim")
def squeeze(call: Call, self: Value, dim: Any = None) -> Value:
    none = dim is not None and not isinstance(dim, int) and len(dim) == 0  # here an empty list means no axis at all
    axes = [] if none else call.axes(self, dim)
    gone = [axis for axis in axes if call.rank(self) and call.dim(self, axis) == 1]
    return call.op("Squeeze", self, gone) if gone else self


@converter("aten::unsqueeze", "aten::unsqueeze_copy")
def unsqueeze(call: Call, self: Value, dim: int) -> Value:
    return call.op("Unsqueeze", self, [dim % (call.rank(self) + 1)])


@converter("aten::expand", "aten::expand_copy")
def expand(call: Call, self: Value, size: Sequence[Dim]) -> Value:
    known = call.outs[0].dims
    if all(dim is not None for dim in known):
        return call.expand(self, known)
    return call.op("Expand", self, call.vector(1 if dim == -1 else dim for dim in size))


@converter("aten::expand_as")
def expand_as(call: Call, self: Value, other: Value) -> Value:
    return call.expand(self, call.all_dims(other))


@converter("aten::broadcast_to")
def broadcast_to(call: Call, self: Value, size: Sequence[Dim]) -> Value:
    return expand(call, self, size)


@converter("aten::t", "aten::t_copy", "aten::numpy_T")
def t(call: Call, self: Value) -> Value:
    return call.op("Transpose", self) if call.rank(self) > 1 else self


@converter("aten::mT", "aten::mH")
def swap_last(call: Call, self: Value) -> Value:
    return _swapped(call, self, -1, -2)


@converter("aten::transpose.int", "aten::transpose_copy.int", "aten::swapaxes", "aten::swapdims")
def transpose(call: Call) -> Value:
    self, first, second = list(call.arguments.values())[:3]
    return _swapped(call, self, first, second)


def _swapped(call: Call, self: Value, first: int, second: int) -> Value:
    order = list(range(call.rank(self)))
    if len(order) < 2 or (first - second) % len(order) == 0:
        return self
    order[first], order[second] = order[second], order[first]
    return call.op("Transpose", self, perm=order)


@converter("aten::permute", "aten::permute_copy")
def permute(call: Call, self: Value, dims: Sequence[int]) -> Value:
    order = [call.axis(self, dim) for dim in dims]
    return self if order == sorted(order) else call.op("Transpose", self, perm=order)


@converter("aten::movedim.int", "aten::movedim.intlist")
def movedim(call: Call, self: Value, source: Any, destination: Any) -> Value:
    sources = [call.axis(self, d) for d in ([source] if isinstance(source, int) else source)]
    targets = [call.axis(self, d) for d in ([destination] if isinstance(destination, int) else destination)]
    rest = iter(axis for axis in range(call.rank(self)) if axis not in sources)
    place = dict(zip(targets, sources, strict=True))
    order = [place[axis] if axis in place else next(rest) for axis in range(call.rank(self))]
    return self if order == sorted(order) else call.op("Transpose", self, perm=order)


@converter("aten::cat", "aten::concat", "aten::concatenate")
def cat(call: Call, tensors: Sequence[Value], dim: int = 0) -> Value:
    """torch lets empty vectors be concatenated with anything."""
    kept = [x for x in tensors if not (call.rank(x) == 1 and call.dim(x, 0) == 0 and call.out_rank != 1)]
    parts = [call.cast(x) for x in (kept or tensors)]
    return parts[0] if len(parts) == 1 else call.op("Concat", *parts, axis=dim % max(call.out_rank, 1))


@converter("aten::stack")
def stack(call: Call, tensors: Sequence[Value], dim: int = 0) -> Value:
    axis = dim % call.out_rank
    parts = [call.op("Unsqueeze", call.cast(x), [axis]) for x in tensors]
    return parts[0] if len(parts) == 1 else call.op("Concat", *parts, axis=axis)


@converter("aten::slice.Tensor", "aten::slice_copy.Tensor")
def slice(call: Call, self: Value, dim: int = 0, start: Dim = None, end: Dim = None, step: Dim = 1) -> Value:
    axis = call.axis(self, dim)
    size = call.dim(self, axis)
    begin = 0 if start is None else start
    stop = _END if end is None else end
    if begin == 0 and step == 1 and (stop == size or (isinstance(stop, int) and stop >= _END) or _covers(size, stop)):
        return self
    return call.op("Slice", self, call.vector([begin]), call.vector([stop]), [axis], call.vector([step]))


def _covers(size: Dim, stop: Dim) -> bool:
    return isinstance(size, int) and isinstance(stop, int) and stop >= size


@converter("aten::narrow")
def narrow(call: Call, self: Value, dim: int, start: Dim, length: Dim) -> Value:
    axis = call.axis(self, dim)
    begin = start if not isinstance(start, int) or start >= 0 else start + call.dim(self, axis)
    return call.op("Slice", self, call.vector([begin]), call.vector([begin + length]), [axis])


@converter("aten::select.int", "aten::select_copy.int")
def select(call: Call, self: Value, dim: int, index: Dim) -> Value:
    return call.op("Gather", self, call.scalar(index, ir.DataType.INT64), axis=call.axis(self, dim))


@converter(
    "aten::split.Tensor", "aten::split.sizes", "aten::split_with_sizes", "aten::split_with_sizes_copy",
    "aten::split_copy.Tensor", "aten::chunk", "aten::unsafe_split.Tensor", "aten::unsafe_split_with_sizes",
    "aten::unsafe_chunk", "aten::tensor_split.sections", "aten::tensor_split.indices", "aten::hsplit.int",
    "aten::vsplit.int", "aten::dsplit.int",
)  # fmt: skip
def split(call: Call) -> Any:
    """Into parts of the sizes that the FX graph states."""
    self = call.arguments["self"]
    axis = _split_axis(call, self)
    if len(call.outs) == 1:
        return [self]
    sizes = [out.dims[axis] for out in call.outs]
    if any(size is None for size in sizes):
        raise Refused("the sizes of the parts are not known beforehand")
    return call.op("Split", self, call.vector(sizes), axis=axis, outputs=len(sizes))


def _split_axis(call: Call, self: Value) -> int:
    if call.name.startswith("aten::hsplit"):
        return 1 if call.rank(self) > 1 else 0
    fixed = {"aten::vsplit": 0, "aten::dsplit": 2}.get(call.name.split(".")[0])
    return fixed if fixed is not None else call.axis(self, call.arguments.get("dim", 0))


@converter("aten::unbind.int", "aten::unbind_copy.int")
def unbind(call: Call, self: Value, dim: int = 0) -> Any:
    axis = call.axis(self, dim)
    count = len(call.outs)
    if count == 1:
        return [call.op("Squeeze", self, [axis])]
    parts = call.op("Split", self, axis=axis, num_outputs=count, outputs=count)
    return [call.op("Squeeze", part, [axis]) for part in parts]


@converter("aten::flip")
def flip(call: Call, self: Value, dims: Sequence[int]) -> Value:
    axes = [call.axis(self, dim) for dim in dims]
    if not axes or not call.rank(self):
        return self
    count = len(axes)
    return call.op("Slice", self, [-1] * count, [-_END] * count, axes, [-1] * count)


@converter("aten::repeat")
def repeat(call: Call, self: Value, repeats: Sequence[Dim]) -> Value:
    extra = len(repeats) - call.rank(self)
    wide = call.op("Unsqueeze", self, list(range(extra))) if extra else self
    return wide if all(r == 1 for r in repeats) else call.op("Tile", wide, call.vector(repeats))


@converter("aten::tile")
def tile(call: Call, self: Value, dims: Sequence[Dim]) -> Value:
    return repeat(call, self, [*[1] * (call.rank(self) - len(dims)), *dims])


@converter("aten::roll")
def roll(call: Call, self: Value, shifts: Sequence[Dim], dims: Sequence[int] = ()) -> Value:
    if not dims:
        flat = _rolled(call, call.reshape(self, [_product(call.all_dims(self))]), shifts[0], 0)
        return call.reshape(flat, call.all_dims(self))
    for shift, dim in zip(shifts, dims, strict=True):
        self = _rolled(call, self, shift, call.axis(self, dim))
    return self


def _product(dims: Sequence[Dim]) -> Dim:
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return total


def _rolled(call: Call, self: Value, shift: Dim, axis: int) -> Value:
    if not call.rank(self):
        return self
    size = call.dim(self, axis)
    if isinstance(size, int) and isinstance(shift, int):
        shift = shift % size if size else 0
    if shift == 0:
        return self
    cut = call.vector([-shift])
    tail = call.op("Slice", self, cut, [_END], [axis])
    return call.op("Concat", tail, call.op("Slice", self, [0], cut, [axis]), axis=axis)


@converter("aten::constant_pad_nd", complex=True)
def constant_pad_nd(call: Call, self: Value, pad: Sequence[Dim], value: Any = 0) -> Value:
    return _padded(call, self, pad, "constant", value)


def _padded(call: Call, self: Value, pad: Sequence[Dim], mode: str, value: Any) -> Value:
    """torch counts pairs from the last axis; ONNX takes all beginnings, then all ends."""
    rank = call.rank(self)
    if call.complex:
        if value != 0:
            raise Refused("padding of complex tensors with other numbers than zero")
        pad = [0, 0, *pad]  # the last axis holds real and imaginary parts
    before: list[Dim] = [0] * rank
    after: list[Dim] = [0] * rank
    for pair in range(len(pad) // 2):
        before[rank - 1 - pair], after[rank - 1 - pair] = pad[2 * pair], pad[2 * pair + 1]
    if mode == "reflect" and any(_more(size, call.dim(self, axis)) for axis, size in enumerate(before)):
        raise Refused("a reflection wider than the axis")
    filler = call.scalar(value, self.dtype) if mode == "constant" else None
    return call.op("Pad", self, call.vector([*before, *after]), filler, mode=mode)


def _more(size: Dim, of: Dim) -> bool:
    return isinstance(size, int) and isinstance(of, int) and size >= of > 0


@converter("aten::pad")
def pad(call: Call, self: Value, pad: Sequence[Dim], mode: str = "constant", value: float | None = None) -> Value:
    return _padded(call, self, pad, _MODES[mode], value or 0)


@converter("aten::diagonal", "aten::diagonal_copy")
def diagonal(call: Call, self: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """Of the flattened last two axes, the elements `start + k * (columns + 1)`."""
    rank = call.rank(self)
    first, second = call.axis(self, dim1), call.axis(self, dim2)
    order = [axis for axis in range(rank) if axis not in (first, second)] + [first, second]
    moved = call.op("Transpose", self, perm=order) if order != sorted(order) else self
    rows, columns = call.dim(self, first), call.dim(self, second)
    flat = call.reshape(moved, [*(call.dim(self, axis) for axis in order[:-2]), rows * columns])
    length = call.dims[-1]
    start = offset if offset >= 0 else -offset * columns
    end = start + length * (columns + 1)
    if isinstance(length, int) and length == 0:
        return call.op("Slice", flat, [0], [0], [rank - 2])
    return call.op("Slice", flat, call.vector([start]), call.vector([end]), [rank - 2], call.vector([columns + 1]))


@converter("aten::unfold", "aten::unfold_copy")
def unfold(call: Call, self: Value, dimension: int, size: Dim, step: Dim) -> Value:
    """Windows of an axis as a new last axis."""
    if not call.rank(self) or not isinstance(size, int) or not isinstance(step, int):
        raise Refused("windows of a size known only at run time")
    axis = call.axis(self, dimension)
    count = call.dims[axis]
    first = call.op("Mul", call.op("Range", 0, call.scalar(count, ir.DataType.INT64), 1), step)
    index = call.op("Add", call.op("Unsqueeze", first, [1]), call.constant(list(range(size)), ir.DataType.INT64))
    windows = call.op("Gather", self, index, axis=axis)
    rank = call.rank(self)
    order = [a for a in range(rank + 1) if a != axis + 1] + [axis + 1]
    return windows if order == sorted(order) else call.op("Transpose", windows, perm=order)
