"""Sizes of pools as stock ONNX Runtime counts them.

Input: a model without weights, whose shapes `onnx` is to infer. Output: the same with every pool in such a form that
`onnx` infers the number of windows that stock gives. Invariant: only attributes of pools change, and only where both
differ: older opsets of `onnx` count a last window that begins beyond the image, newer ones the windows of images that
are too small. The model is good for shapes alone.
"""

from __future__ import annotations

from typing import Final

import onnx
from onnx import helper

_POOLS: Final = frozenset({"AveragePool", "LpPool", "MaxPool"})
_NOT_INFERRED: Final = "smelt.unknown"


def infer_with_pools(proto: onnx.ModelProto) -> onnx.ModelProto:
    """What `onnx` infers, with pools of known sizes corrected one after the other in the order of the graph."""
    while True:
        found = onnx.shape_inference.infer_shapes(proto, data_prop=True)
        sizes = {v.name: _sizes(v) for v in (*found.graph.input, *found.graph.value_info, *found.graph.output)}
        if not any(_correct(node, sizes) for node in proto.graph.node):
            return found


def _sizes(value: onnx.ValueInfoProto) -> list[int]:
    """Sizes of an image; empty where one is not known."""
    dims = value.type.tensor_type.shape.dim[2:]
    return [d.dim_value for d in dims] if all(d.HasField("dim_value") for d in dims) else []


def _correct(node: onnx.NodeProto, sizes: dict[str, list[int]]) -> bool:
    """Whether the node is a pool that was counted wrongly; then it is not any more."""
    if node.op_type not in _POOLS or node.domain:
        return False
    image, counted = sizes.get(node.input[0], []), sizes.get(node.output[0], [])
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if not image or not counted or given.get("auto_pad", b"NOTSET") != b"NOTSET":
        return False
    rank, kernel = len(image), given.get("kernel_shape", [])
    strides, dilations = given.get("strides") or [1] * rank, given.get("dilations") or [1] * rank
    pads = given.get("pads") or [0] * (2 * rank)
    if not rank == len(kernel) == len(strides) == len(dilations) == len(pads) // 2:
        return False
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    up = bool(given.get("ceil_mode", 0))
    sides = list(zip(image, pads[:rank], pads[rank:], reach, strides, strict=True))
    counts = [_count(*side, round_up=up) for side in sides]
    if counts == counted:
        return False
    ends = [max((c - 1) * s + r - n - b, 0) for c, (n, b, _, r, s) in zip(counts, sides, strict=True)]
    fits = all((n + b + e - r) // s + 1 == c for c, e, (n, b, _, r, s) in zip(counts, ends, sides, strict=True))
    if not fits or min(counts) < 1:
        node.domain = _NOT_INFERRED
        return True
    kept = [a for a in node.attribute if a.name not in ("ceil_mode", "pads")]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute("pads", [*pads[:rank], *ends])])
    return True


def _count(size: int, before: int, after: int, reach: int, stride: int, *, round_up: bool) -> int:
    """Stock divides toward zero; when rounding up, the last window must begin inside of the image or its left pad."""
    span = size + before + after - reach
    if not round_up:
        return max(int(span / stride) + 1, 0)
    count = -(-span // stride) + 1
    return max(count - 1 if (count - 1) * stride >= size + before else count, 0)
