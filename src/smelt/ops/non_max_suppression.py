"""NonMaxSuppression: the boxes of the highest scores that do not overlap much.

Input: a node; limits come at run time. Output: a function in C (`suppression_unit.h`), whose result has as many rows as
boxes are chosen. Invariant: batches and classes are apart; the order is that of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from smelt.ir.kernel import Function, Ix, Tensor, Unsupported, fn, ix, of
from smelt.ir.kernel.tensor import Arrays
from smelt.ops.functions import given

from .registry import Call, op

Array = np.ndarray[Any, Any]


@op("NonMaxSuppression", since=10, kind="function")
def non_max_suppression(call: Call) -> Tensor:
    boxes, scores = call.x(0), call.x(1)
    if (boxes.rank, scores.rank, boxes.dtype, scores.dtype) != (3, 3, "f32", "f32"):
        raise Unsupported("boxes or scores of another type or rank")
    call.k.require_equal(boxes.shape[0], scores.shape[0], "boxes and scores must have the same batches")
    call.k.require_equal(boxes.shape[1], scores.shape[2], "there must be a score for each box")
    call.k.require_equal(boxes.shape[2], 4, "a box has four numbers")
    most = call.maybe(2)
    limits = [_scalar(call, place, dtype) for place, dtype in ((2, "i64"), (3, "f32"), (4, "f32"))]
    batches, classes, count = scores.shape
    found = call.found_size(0, 0)
    function = Function(
        name="smelt_non_max_suppression", text="#include <smelt/functions/suppression_unit.h>\n",
        operands=(boxes, scores, *limits), results=(((of(found), ix(3)), "i64"),),
        numbers=(batches, classes, count, ix(call.int("center_point_box", 0))), factors=(),
        scratch_bytes=batches * classes * (count + 1) * 8, flops=scores.elements * 16, reference=_chosen,
        found=((found, batches * classes * _most(call, most, count)),),
    )  # fmt: skip
    return call.k.function(function)[0]


def _scalar(call: Call, place: int, dtype: str) -> Tensor | None:
    operand = call.maybe(place)
    if operand is None:
        return None
    if operand.dtype != dtype or operand.rank > 1:
        raise Unsupported(f"input {place} is no single number")
    if operand.rank == 1:
        call.k.require_equal(operand.shape[0], 1, f"input {place} must be a single number")
    return operand


def _most(call: Call, operand: Tensor | None, count: Ix) -> Ix:
    """Boxes of one class at most."""
    known = call.k.values(operand) if operand is not None else (ix(0),)
    limit = known[0].const if known else None
    return count if limit is None else fn("min", count, max(limit, 0))


def _chosen(arrays: Arrays, numbers: Sequence[int], factors: Sequence[float]) -> tuple[Array]:
    del factors
    boxes, scores = given(arrays), given(arrays, 1)
    most = 0 if arrays[2] is None else int(arrays[2].reshape(-1)[0])
    overlap = 0.0 if arrays[3] is None else arrays[3].reshape(-1)[0]
    least = None if arrays[4] is None else arrays[4].reshape(-1)[0]
    rows: list[tuple[int, int, int]] = []
    for batch, cls in np.ndindex(scores.shape[:2]):
        own = scores[batch, cls]
        corners = _corners(boxes[batch], numbers[3])
        kept: list[int] = []
        for i in np.argsort(-own, kind="stable"):
            if len(kept) < most and (least is None or own[i] > least) and not _overlaps(corners, int(i), kept, overlap):
                kept.append(int(i))
        rows += [(batch, cls, i) for i in kept]
    return (np.array(rows, np.int64).reshape(-1, 3),)


def _corners(boxes: Array, centred: int) -> Array:
    """Rows of y0, x0, y1, x1."""
    if centred:
        x, y, w, h = boxes.T
        boxes = np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], 1)
    return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], 1)


def _overlaps(corners: Array, one: int, others: Sequence[int], limit: float) -> bool:
    a, b = corners[one], corners[list(others)].reshape(-1, 4)
    sides = np.maximum(np.minimum(a[2:], b[:, 2:]) - np.maximum(a[:2], b[:, :2]), 0)
    shared: Array = sides[:, 0] * sides[:, 1]
    own, area = (a[2] - a[0]) * (a[3] - a[1]), (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    union: Array = own + area - shared
    valid: Array = (shared > 0) & (own > 0) & (area > 0) & (union > 0)
    return bool(np.any(shared[valid] / union[valid] > limit))
