"""What was derived of a value's sizes, as opposed to what the file declares.

Input: values of a model. Output: marks on them. Invariant: two axes with equal marks have equal sizes in every run; a
name in a file marks nothing.
"""

from __future__ import annotations

from typing import cast

import onnx_ir as ir

Mark = int | str | None
_KEY = "smelt.sizes"


def mark_sizes(value: ir.Value, marks: tuple[Mark, ...] | None) -> None:
    """Numbers, names that the deriver made, or None for each axis; None where nothing was derived."""
    value.meta[_KEY] = marks


def derived_sizes(value: ir.Value) -> tuple[Mark, ...] | None:
    return cast("tuple[Mark, ...] | None", value.meta.get(_KEY))


def known_shape(value: ir.Value) -> ir.Shape | None:
    """Numbers that hold in every run, and names that are equal only where sizes are; None where the rank is a claim.

    A value that was made since shapes were derived has the numbers that its maker gave it."""
    if _KEY in value.meta:
        marks = derived_sizes(value)
        return None if marks is None else ir.Shape([m if isinstance(m, int) else ir.SymbolicDim(m) for m in marks])
    if value.shape is None or (value.is_graph_output() and value.producer() is not None):
        return None
    return ir.Shape([d if isinstance(d, int) and d >= 0 else ir.SymbolicDim(None) for d in value.shape])


def is_derived(value: ir.Value) -> bool:
    """Whether the numbers in the value's shape follow from the graph."""
    return derived_sizes(value) is not None


def certain_shape(value: ir.Value) -> ir.Shape | None:
    """What may be written into a model: ONNX Runtime plans memory by shapes, and takes equal names for equal sizes."""
    known = known_shape(value)
    return None if known is None else ir.Shape([d if isinstance(d, int) else ir.SymbolicDim(None) for d in known])
