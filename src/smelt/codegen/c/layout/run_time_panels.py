"""Panels of a convolution's weights: packed ahead of time when they are constant, else when they come.

Input: the weights and the name of a layout. Output: a stored buffer of panels, or a view that has their elements.
Invariant: both are the same `PackedFormat`.
"""

from __future__ import annotations

from smelt.ir.kernel import Builder, Expr, Tensor, Unsupported, View, fn
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.layout import Index
from smelt.ir.kernel.window import numbers

from .arrangement import PANEL, moved_tensor, to_matrices
from .formats import format_named, panel_shape


def panels(k: Builder, weights: Tensor, layout: str) -> Tensor:
    """The weights in panels of 16 columns."""
    found = k.pack(weights, layout)
    if found is not None:
        return found
    packed = format_named(layout)
    shape, sizes = packed.matrices(weights.shape), numbers(weights.shape)
    steps = None if sizes is None else to_matrices(sizes, packed.arrangement, packed.groups)
    if shape is None or steps is None:
        raise Unsupported("the weights' sizes are known only at run time")
    return _paneled(k, moved_tensor(k, weights, steps), shape)


def _paneled(k: Builder, matrices: Tensor, shape: Index) -> Tensor:
    """Columns in panels, zeros beyond the last one."""
    columns, zero = shape[-1], E.const(0, "f32")

    def at(w: Index) -> Expr:
        *outer, panel, depth, lane = w
        column = panel * PANEL + lane
        kept = fn("min", column, columns - 1)
        element = matrices.at((*outer, depth, kept))
        inside = E.op("eq", E.index(column), E.index(kept))
        return element if (columns.const or 1) % PANEL == 0 else E.select(inside, element, zero)

    return k.make(panel_shape(shape), "f32", View(at, matrices))
