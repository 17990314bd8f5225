"""Marks of a lower precision: Casts that widen a narrow weight for the node that reads it; nodes that stay as they are.

Input: nodes. Output: marks on them. Invariant: that of a Cast is metadata, which files keep. No pass folds a marked
Cast; a product of bfloat16 weights behind one may round its other operand to bfloat16 too. That of a node that stays is
no part of the model.
"""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

_MARK: Final = "smelt.narrow"
_WIDE: Final = "smelt.wide"


def mark_narrowed(cast: ir.Node) -> None:
    cast.metadata_props[_MARK] = "1"


def is_narrowed(node: ir.Node) -> bool:
    return _MARK in node.metadata_props


def keep_wide(node: ir.Node, wide: bool = True) -> None:
    node.meta.pop(_WIDE, None)
    if wide:
        node.meta[_WIDE] = True


def is_kept_wide(node: ir.Node) -> bool:
    """Whether the node's weights stay in the type that they have."""
    return _WIDE in node.meta


def reads_bfloat16(node: ir.Node) -> bool:
    """Whether it has an operand in bfloat16, or behind a marked Cast from it."""
    return any(_is_bfloat16(value) for value in node.inputs if value is not None)


def _is_bfloat16(value: ir.Value) -> bool:
    cast = value.producer()
    if cast is not None and is_narrowed(cast):
        source = cast.inputs[0]
        return source is not None and source.dtype == ir.DataType.BFLOAT16
    return value.dtype == ir.DataType.BFLOAT16
