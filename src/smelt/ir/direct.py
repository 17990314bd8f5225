"""Convolutions that are computed as they are stated, without a transform that loses digits.

Input: nodes of a region that failed. Output: a mark on those that a kernel may transform. Invariant: the mark is no
part of the model: files, hashes of models and clones do not have it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import onnx_ir as ir

_MARK: Final = "smelt.direct"
_SIDES: Final = (3, 3)  # of filters that have such a transform


def is_direct(node: ir.Node) -> bool:
    return _MARK in node.meta


def mark_direct(nodes: Iterable[ir.Node]) -> bool:
    """Whether there was any convolution to mark."""
    chosen = [node for node in nodes if not is_direct(node) and _may_be_transformed(node)]
    for node in chosen:
        node.meta[_MARK] = True
    return bool(chosen)


def _may_be_transformed(node: ir.Node) -> bool:
    if node.op_type not in ("Conv", "FusedConv") or len(node.inputs) < 2:
        return False
    stride, groups, weights = node.attributes.get("strides"), node.attributes.get("group"), node.inputs[1]
    if weights is None or weights.shape is None or tuple(weights.shape)[2:] != _SIDES:
        return False
    near = stride is None or set(stride.as_ints()) == {1}
    return near and (groups is None or groups.as_int() == 1)
