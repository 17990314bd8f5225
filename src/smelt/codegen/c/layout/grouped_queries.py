"""Grouped queries with a cache as a function in C: no copy of the cache where past and present share memory.

Input: a call of GroupQueryAttention. Output: its results, by `grouped_queries_unit.h`; None where there is no past, and
for windows and biases, which the declaration serves. Invariant: operands, numbers and factors are in the order of the
enums in the header; memory that the header takes for granted is counted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from smelt.ir.kernel import Function, Ix, Tensor, fn, ix
from smelt.ir.kernel.tensor import Arrays
from smelt.ops.group_query_attention import GroupedQueries, grouped_queries, grouped_reference
from smelt.ops.registry import Call

Array = np.ndarray[Any, Any]
NAME: Final = "smelt_grouped_queries"
UNIT: Final = "#include <smelt/attention/grouped_queries_unit.h>\n"
LINKS: Final = ("tiles",)
SPAN: Final = 512  # SMELT_GQ_SPAN
FEW: Final = 16  # SMELT_GQ_FEW
PANEL: Final = 16
HEADS, KV_HEADS, TOTAL = 2, 3, 7  # places in the numbers


def cached_attention(call: Call) -> Sequence[Tensor | None] | None:
    if call.maybe(3) is None or call.maybe(4) is None or call.maybe(10) is not None:
        return None
    if call.int("local_window_size", -1) > 0 or any(call.x(i).dtype != "f32" for i in (0, 3, 4)):
        return None
    made = grouped_queries(call)
    depth = made.query.shape[2] // made.heads
    if depth.const is None or call.x(5).dtype != "i32":
        return None
    return call.k.function(_function(call, made, depth))[: call.n_outputs]


def _function(call: Call, made: GroupedQueries, depth: Ix) -> Function:
    sizes, sink = made.sizes, _sink(call, made)
    batch, rows, kv_heads = sizes.batch, sizes.rows, made.kv_heads
    cache = (batch, ix(kv_heads), sizes.length, depth)
    numbers = (batch, rows, made.heads, kv_heads, depth, call.x(3).shape[2], sizes.length, sizes.total)
    return Function(
        name=NAME,
        text=UNIT,
        links=LINKS,
        operands=(made.query, made.key, made.value, call.x(3), call.x(4), call.x(5), sink),
        results=(((batch, rows, depth * made.heads), "f32"), (cache, "f32"), (cache, "f32")),
        numbers=tuple(ix(n) for n in numbers),
        factors=(made.scale, made.softcap),
        scratch_bytes=_scratch_bytes(batch, rows * (made.heads // kv_heads), kv_heads, sizes.length, depth),
        flops=batch * rows * sizes.length * depth * (4 * made.heads),
        reference=reference,
    )


def _sink(call: Call, made: GroupedQueries) -> Tensor | None:
    """One of each head."""
    if made.sink is None:
        return None
    each = made.sink.shape[1] == ix(made.heads)
    return call.k.view(made.sink, (ix(made.heads),), lambda w: (ix(0), w[0] if each else ix(0), ix(0), ix(0)))


def _scratch_bytes(batch: Ix, rows: Ix, kv_heads: int, length: Ix, depth: Ix) -> Ix:
    """Parts of few rows, span by span of the keys."""
    wide = (depth + (PANEL - 1)) // PANEL * PANEL + 2
    return batch * fn("min", rows, FEW) * wide * ((length + (SPAN - 1)) // SPAN) * (kv_heads * 4)


def reference(arrays: Arrays, numbers: Sequence[int], factors: Sequence[float]) -> tuple[Array, ...]:
    """By numpy, from queries and keys that are rotated already."""
    query, key, value, past_key, past_value, last, sink = arrays
    assert query is not None and key is not None and value is not None and last is not None
    return grouped_reference(
        query, key, value, past_key, past_value, last, np.array([numbers[TOTAL]]), sink=sink, num_heads=numbers[HEADS],
        kv_num_heads=numbers[KV_HEADS], scale=factors[0], softcap=factors[1],
    )  # fmt: skip
