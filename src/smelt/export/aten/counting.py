"""Elements counted by what they are or by where they lie: runs of equal ones, bins, segments.

Input: calls. Output: values. Invariant: an element belongs to the bin whose lower edge it has reached, the last bin has
its upper edge too; what lies in no bin is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from smelt.export.call import Call
from smelt.export.dtypes import BOOL, DOUBLE, FLOAT, INT64, is_float
from smelt.export.records import Refused
from smelt.export.registry import converter

Value = ir.Value
_START = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
_REDUCTION = {"sum": "add", "mean": "add", "prod": "mul", "max": "max", "min": "min"}


# Runs


@converter("aten::unique_consecutive")
def unique_consecutive(
    call: Call, self: Value, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> list[Value]:
    """Of each run of equal elements (or slices along `dim`) the first; the run of each element; how long runs are."""
    if dim is None:
        source, axis = call.reshape(self, [math.prod(call.all_dims(self))]), 0
        rows = source
    else:
        source, axis = self, call.axis(self, dim)
        rows = _as_rows(call, self, axis)
    starts = _starts(call, rows)
    values = call.op("Compress", source, starts, axis=axis)
    everything = dim is not None  # torch returns all three then
    number = call.op("Sub", call.op("CumSum", call.cast(starts, INT64), call.constant(0, INT64)), 1)
    runs = number if dim is not None else call.reshape(number, call.all_dims(self))
    none = call.filled([0], 0, INT64)
    return [
        values,
        runs if return_inverse or everything else none,
        _lengths(call, starts) if return_counts or everything else none,
    ]


def _as_rows(call: Call, value: Value, axis: int) -> Value:
    """A matrix with a row for each slice along the axis."""
    dims = call.all_dims(value)
    rest = [at for at in range(len(dims)) if at != axis]
    if not rest:
        return value
    front = call.op("Transpose", value, perm=[axis, *rest])
    return call.reshape(front, [dims[axis], math.prod(dims[at] for at in rest)])


def _starts(call: Call, rows: Value) -> Value:
    """Whether a row differs from the one before it; the first always does."""
    size, far = call.dim(rows, 0), 1 << 62
    if size == 0:
        raise Refused("runs among no elements")
    work = call.cast(rows, ir.DataType.INT32) if rows.dtype == BOOL else rows
    later, earlier = call.op("Slice", work, [1], [far], [0]), call.op("Slice", work, [0], [-1], [0])
    other = call.cast(call.op("Not", call.op("Equal", later, earlier)), INT64)
    if call.rank(rows) > 1:
        other = call.op("ReduceMax", other, [1], keepdims=0)
    return call.cast(call.op("Concat", call.constant([1], INT64), other, axis=0), BOOL)


def _lengths(call: Call, starts: Value) -> Value:
    places = call.op("Reshape", call.op("NonZero", starts), [-1], shape=[None])
    ends = call.op("Concat", call.op("Slice", places, [1], [1 << 62], [0]), call.op("Shape", starts), axis=0)
    return call.op("Sub", ends, places)


# Bins


@converter("aten::bincount")
def bincount(call: Call, self: Value, weights: Value | None = None, minlength: Any = 0) -> Value:
    """How often each number from zero to the largest occurs, or the sum of the weights that it has."""
    if any(size == 0 for size in call.all_dims(self)):
        return call.filled([minlength], 0)
    places = call.cast(self, INT64)
    most = call.op("Add", call.op("ReduceMax", places, keepdims=1), 1)
    length = call.op("Max", most, call.vector([minlength]))
    what = call.filled(call.shape_of(self), 1) if weights is None else call.cast(weights)
    return call.op("ScatterElements", call.filled(length, 0), places, what, axis=0, reduction="add")


@converter("aten::histogram.bin_ct")
def histogram(
    call: Call, self: Value, bins: int, range: Sequence[float] | None = None, weight: Value | None = None,
    density: bool = False,
) -> list[Value]:  # fmt: skip
    elements = _flat(call, self)
    edges = _even_edges(call, elements, bins, tuple(range) if range else None)
    return [_binned(call, [elements], [edges], weight, density), edges]


@converter("aten::histogram.bins_tensor")
def histogram_by_edges(
    call: Call, self: Value, bins: Value, weight: Value | None = None, density: bool = False
) -> list[Value]:
    return [_binned(call, [_flat(call, self)], [bins], weight, density), bins]


@converter("aten::_histogramdd_bin_edges")
def histogramdd_edges(
    call: Call, self: Value, bins: Sequence[int], range: Sequence[float] | None = None, weight: Value | None = None,
    density: bool = False,
) -> list[Value]:  # fmt: skip
    columns = _columns(call, self)
    limits = [tuple(range[2 * at : 2 * at + 2]) if range else None for at, _ in enumerate(columns)]
    return [_even_edges(call, c, count, limit) for c, count, limit in zip(columns, bins, limits, strict=True)]


@converter("aten::_histogramdd_from_bin_cts")
def histogramdd(
    call: Call, self: Value, bins: Sequence[int], range: Sequence[float] | None = None, weight: Value | None = None,
    density: bool = False,
) -> Value:  # fmt: skip
    edges = histogramdd_edges(call, self, bins, range)
    return _binned(call, _columns(call, self), edges, weight, density)


@converter("aten::_histogramdd_from_bin_tensors")
def histogramdd_by_edges(
    call: Call, self: Value, bins: Sequence[Value], weight: Value | None = None, density: bool = False
) -> Value:
    return _binned(call, _columns(call, self), list(bins), weight, density)


def _flat(call: Call, value: Value) -> Value:
    return call.reshape(value, [math.prod(call.all_dims(value))])


def _columns(call: Call, value: Value) -> list[Value]:
    """(..., D) -> D lists of coordinates."""
    *lead, last = call.all_dims(value)
    if not isinstance(last, int):
        raise Refused("a histogram over a number of axes that is not known")
    rows = call.reshape(value, [math.prod(lead), last])
    return [call.op("Gather", rows, call.constant(at, INT64), axis=1) for at in range(last)]


def _even_edges(call: Call, elements: Value, bins: int, limits: tuple[float, ...] | None) -> Value:
    """`bins` + 1 edges as torch.linspace has them: counted from the nearer end."""
    if elements.dtype != FLOAT:
        raise Refused("edges of bins in another type than float32")
    if limits is None:
        if call.dim(elements, 0) == 0:
            low, high = call.constant(0.0, FLOAT), call.constant(1.0, FLOAT)
        else:
            low, high = (call.op(kind, elements, keepdims=0) for kind in ("ReduceMin", "ReduceMax"))
    else:
        low, high = (call.constant(limit, FLOAT) for limit in limits)
    alike = call.op("Equal", low, high)
    half = call.constant(0.5, FLOAT)
    low, high = (call.op("Where", alike, call.op(kind, end, half), end) for kind, end in (("Sub", low), ("Add", high)))
    step = call.op("Div", call.op("Sub", high, low), call.constant(float(bins), FLOAT))
    count = bins + 1
    up = call.op("Add", low, call.op("Mul", step, call.constant([float(k) for k in range(count // 2)], FLOAT)))
    back = call.constant([float(count - 1 - k) for k in range(count // 2, count)], FLOAT)
    down = call.op("Sub", high, call.op("Mul", step, back))
    return call.op("Concat", up, down, axis=0, shape=[count])


def _binned(call: Call, columns: Sequence[Value], edges: Sequence[Value], weight: Value | None, density: bool) -> Value:
    counts = [_plain(call.dim(each, 0)) - 1 for each in edges]
    flat, inside = call.constant(0, INT64), call.constant(True, BOOL)
    for column, edge, count in zip(columns, edges, counts, strict=True):
        place, within = _place(call, column, edge, count)
        flat = call.op("Add", call.op("Mul", flat, call.constant(count, INT64)), place)
        inside = call.op("And", inside, within)
    what = call.filled(call.shape_of(columns[0]), 1) if weight is None else _flat(call, call.cast(weight))
    counted = call.op("Where", inside, call.cast(what, DOUBLE), call.constant(0.0, DOUBLE))
    empty = call.filled([math.prod(counts)], 0, DOUBLE)
    total = call.op("ScatterElements", empty, flat, counted, axis=0, reduction="add")
    total = call.reshape(total, counts)
    return call.cast(_dense(call, total, edges) if density else total)


def _place(call: Call, column: Value, edges: Value, count: int) -> tuple[Value, Value]:
    reached = call.op("GreaterOrEqual", call.op("Unsqueeze", column, [1]), edges)
    number = call.op("Sub", call.op("ReduceSum", call.cast(reached, INT64), [1], keepdims=0), 1)
    last = call.op("Slice", edges, [-1], [1 << 62], [0])
    within = call.op("And", call.op("GreaterOrEqual", number, 0), call.op("LessOrEqual", column, last))
    bounded = call.op("Min", call.op("Max", number, call.constant(0, INT64)), call.constant(count - 1, INT64))
    return bounded, within


def _dense(call: Call, total: Value, edges: Sequence[Value]) -> Value:
    """Shares of the whole per volume of a bin."""
    result = call.op("Div", total, call.op("ReduceSum", total, keepdims=0))
    for axis, each in enumerate(edges):
        wide = call.cast(each, DOUBLE)
        width = call.op("Sub", call.op("Slice", wide, [1], [1 << 62], [0]), call.op("Slice", wide, [0], [-1], [0]))
        result = call.op("Div", result, call.op("Reshape", width, [-1, *[1] * (len(edges) - 1 - axis)]))
    return result


# Segments


@converter("aten::segment_reduce")
def segment_reduce(
    call: Call, data: Value, reduce: str, lengths: Value | None = None, offsets: Value | None = None, axis: int = 0,
    unsafe: bool = False, initial: float | None = None,
) -> Value:  # fmt: skip
    """Rows of each segment together. Segments are given by their lengths, or by where they begin and the last ends."""
    given = lengths if lengths is not None else offsets
    if given is None or call.rank(given) != 1 or axis != 0 or not is_float(data.dtype):
        raise Refused("segments along an inner axis")
    ends = call.cast(given, INT64)
    ends = call.op("CumSum", ends, call.constant(0, INT64)) if lengths is not None else _tail(call, ends)
    count = call.dims[0]
    rows = call.op("Range", call.constant(0, INT64), call.scalar(call.dim(data, 0), INT64), call.constant(1, INT64))
    segment = call.op("GreaterOrEqual", call.op("Unsqueeze", rows, [1]), ends)
    segment = call.op("ReduceSum", call.cast(segment, INT64), [1], keepdims=0)
    # One segment more, for the rows behind the last one.
    start = call.filled([count + 1, *call.dims[1:]], _START[reduce] if initial is None else float(initial))
    places = call.op("Unsqueeze", segment, [1])
    made = _but_last(call, call.op("ScatterND", start, places, data, reduction=_REDUCTION[reduce]))
    if reduce != "mean":
        return made
    ones = call.filled(call.shape_of(rows), 1.0)
    sizes = _but_last(call, call.op("ScatterND", call.filled([count + 1], 0.0), places, ones, reduction="add"))
    sizes = call.op("Reshape", sizes, [-1, *[1] * (call.rank(data) - 1)])
    mean = call.op("Div", made, sizes)  # 0 / 0 is NaN, as the mean of nothing
    return mean if initial is None else call.op("Where", call.op("Equal", sizes, call.scalar(0.0)), made, mean)


def _tail(call: Call, value: Value) -> Value:
    return call.op("Slice", value, [1], [1 << 62], [0])


def _but_last(call: Call, value: Value) -> Value:
    return call.op("Slice", value, [0], [-1], [0])


def _plain(size: Any) -> int:
    if not isinstance(size, int):
        raise Refused("bins whose number is not known")
    return size
