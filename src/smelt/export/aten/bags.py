"""Bags of embeddings: rows of a table, added, averaged or compared bag by bag.

Input: calls. Output: values. Invariant: an empty bag is a row of zeros; rows of the padding index are in no bag.
Only the first result is computed: torch's own gradient wants the others, and who reads them keeps the call in torch.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from smelt.export.call import Call
from smelt.export.dtypes import INT64
from smelt.export.registry import converter

Value = ir.Value
_SUM, _MEAN, _MAX = range(3)


@converter("aten::_embedding_bag", "aten::_embedding_bag_forward_only")
def embedding_bag(
    call: Call, weight: Value, indices: Value, offsets: Value, scale_grad_by_freq: bool = False, mode: int = _SUM,
    sparse: bool = False, per_sample_weights: Value | None = None, include_last_offset: bool = False,
    padding_idx: int = -1,
) -> list[Value]:  # fmt: skip
    """A word's bag is the last one that begins at or before it; one more bag takes the words that do not count."""
    begins, words = call.cast(offsets, INT64), call.cast(indices, INT64)
    if include_last_offset:
        begins = call.op("Slice", begins, [0], [-1], [0])
    count, depth = call.dims
    bag = _bags(call, words, begins)
    if padding_idx >= 0:
        padding = call.op("Equal", words, call.constant(padding_idx, INT64))
        bag = call.op("Where", padding, call.scalar(count, INT64), bag)
    rows = call.op("Gather", weight, words)
    if per_sample_weights is not None:
        rows = call.op("Mul", rows, call.op("Unsqueeze", per_sample_weights, [1]))
    places = call.op("Unsqueeze", bag, [1])
    start = call.filled([count + 1, depth], -math.inf if mode == _MAX else 0.0)
    total = _counted(call, call.op("ScatterND", start, places, rows, reduction="max" if mode == _MAX else "add"))
    none = call.filled([0], 0, INT64)
    if mode == _SUM:
        return [total, none, none, none]
    ones = call.filled(call.shape_of(bag), 1.0)
    sizes = _counted(call, call.op("ScatterND", call.filled([count + 1], 0.0), places, ones, reduction="add"))
    sizes = call.op("Unsqueeze", sizes, [1])
    if mode == _MEAN:
        return [call.op("Div", total, call.op("Max", sizes, call.scalar(1.0))), none, none, none]
    empty = call.op("Equal", sizes, call.scalar(0.0))
    return [call.op("Where", empty, call.scalar(0.0), total), none, none, none]


def _bags(call: Call, words: Value, begins: Value) -> Value:
    last = call.scalar(call.dim(words, 0), INT64)
    place = call.op("Range", call.constant(0, INT64), last, call.constant(1, INT64))
    begun = call.cast(call.op("GreaterOrEqual", call.op("Unsqueeze", place, [1]), begins), INT64)
    return call.op("Sub", call.op("ReduceSum", begun, [1], keepdims=0), 1)


def _counted(call: Call, bags: Value) -> Value:
    return call.op("Slice", bags, [0], [-1], [0])
