"""Inputs that are weights: fed at every call, but seldom changed.

Input: a value. Output: whether it is marked so. Invariant: the mark is a hint about speed alone; a marked input may
change from call to call, and no pass takes its contents for known.
"""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

_MARK: Final = "smelt.weight"


def mark_weight(value: ir.Value) -> None:
    """Say that whoever feeds this input keeps it unchanged over many calls."""
    value.metadata_props[_MARK] = "1"


def is_weight(value: ir.Value) -> bool:
    """Whether this is a marked input of known shape."""
    if _MARK not in value.metadata_props or not value.is_graph_input() or value.const_value is not None:
        return False
    return value.shape is not None and value.shape.is_static()


def is_packable(value: ir.Value) -> bool:
    """Whether the value may be laid out anew once for many calls: a constant, or a weight."""
    return is_weight(value) if value.is_graph_input() else value.const_value is not None
