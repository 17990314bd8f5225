"""Panels of a convolution's weights: packed ahead of time when they are constant, else when they come.

Input: the weights and the name of a layout. Output: a stored buffer of panels, or a view that has their elements.
Invariant: both are the layout of panels.py.
"""

from __future__ import annotations

from smelt.ir.kernel import Builder, Expr, Tensor, Unsupported, View, fn, product
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.layout import Index

from .panels import PANEL, arranged_shape, panel_shape


def panels(k: Builder, weights: Tensor, layout: str) -> Tensor:
    """The weights in panels of 16 columns."""
    found = k.pack(weights, layout)
    if found is not None:
        return found
    shape = arranged_shape(weights.shape, layout)
    if shape is None:
        raise Unsupported("the weights' sizes are known only at run time")
    return _paneled(k, _arranged(k, weights, layout), shape)


def _arranged(k: Builder, weights: Tensor, layout: str) -> Tensor:
    """As panels.arranged does with constants."""
    kind, _, number = layout.partition(":")
    groups, taps = int(number or 1), product(weights.shape[2:])
    rows, columns = weights.shape[:2]
    if kind in ("depthwise", "nchw"):
        return k.transpose(k.reshape(weights, (rows, columns * taps)), (1, 0))
    each = rows // groups
    stack = k.reshape(weights, (groups, each, columns, taps))
    if kind == "window":
        transposed, shape = k.transpose(stack, (0, 3, 2, 1)), (taps * columns, each)
    elif kind == "spread":
        transposed, shape = k.transpose(stack, (0, 3, 1, 2)), (taps * each, columns)
    else:
        transposed, shape = k.transpose(stack, (0, 1, 3, 2)), (rows, taps * columns)
    return k.reshape(transposed, shape if groups == 1 else (groups, *shape))


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
