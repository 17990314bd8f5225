"""How the weights of a product become matrices, which are then cut into panels of 16 columns.

Input: the shape or the contents of a constant and the name of a layout. Output: the shape or the contents of a stack of
matrices (..., depth, columns). Invariant: shapes and contents follow one rule; only the order of elements changes,
except in Winograd's form, which is computed in float64 and rounded once.

| layout | constant | matrices |
|---|---|---|
| plain | (K, N) | (K, N) |
| transposed | (N, K) | (K, N) |
| window:G | (G * M, C, *taps) | (G, taps * C, M): a convolution in G groups |
| dots:G | (G * M, C, *taps) | (G, M, lines * C * line): each line of taps filled up with zeros to whole panels |
| narrow | (G * M, C, *taps) | (taps * C, G * M): a convolution in narrow groups, side by side |
| depthwise | (C, 1, *taps) | (taps, C): a convolution with one filter for each channel |
| nchw | (M, C, *taps) | (C * taps, M): a convolution of an image in NCHW |
| winograd | (M, C, 3, 3) | (24, C, M): the taps of every filter, transformed |
| spread:G | (G * C, M, *taps) | (G, taps * C, M): a transposed convolution in G groups |
| stamp | (C, M, *taps) | (C, taps * M): a transposed convolution whose windows do not overlap |
| gates:G | (D, G * H, K) | (D, K, blocks * G * 16): a block is 16 units, of which all gates follow each other |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from smelt.ir.kernel import Ix, ix

from . import winograd

PANEL = 16
COMPUTED = frozenset(("winograd",))  # layouts whose elements are no copies
Array = np.ndarray[Any, Any]


def arranged_shape(shape: Sequence[Ix], layout: str) -> tuple[Ix, ...] | None:
    """The stack of matrices that a constant of this shape becomes; None where the layout does not fit it."""
    if layout in ("plain", "transposed"):
        found = tuple(shape[::-1] if layout == "transposed" else shape)
        return found if len(shape) == 2 else None
    sizes = [s.const for s in shape]
    known = [s for s in sizes if s is not None]
    if len(known) != len(sizes) or len(known) < 3:
        return None
    taps = math.prod(known[2:])
    kind, _, number = layout.partition(":")
    groups = int(number or 1)
    match kind:
        case "window" if known[0] % groups == 0:
            out = (groups, taps * known[1], known[0] // groups)
        case "spread" if known[0] % groups == 0:
            out = (groups, taps * (known[0] // groups), known[1])
        case "dots" if known[0] % groups == 0:
            out = (groups, known[0] // groups, math.prod(known[2:-1]) * _whole_panels(known[1] * known[-1]))
        case "depthwise" if known[1] == 1:
            out = (taps, known[0])
        case "winograd" if known[2:] == [3, 3]:
            out = (winograd.TERMS, known[1], known[0])
        case "narrow":
            out = (taps * known[1], known[0])
        case "nchw":
            out = (known[1] * taps, known[0])
        case "stamp":
            out = (known[0], taps * known[1])
        case "gates" if len(known) == 3 and known[1] % groups == 0:
            out = (known[0], known[2], -(-(known[1] // groups) // PANEL) * groups * PANEL)
        case _:
            return None
    return tuple(ix(s) for s in (out[1:] if kind in ("window", "spread", "dots") and groups == 1 else out))


def arranged(weights: Array, layout: str) -> Array:
    """The contents in the order that `arranged_shape` states."""
    if layout in ("plain", "transposed"):
        return weights.T if layout == "transposed" else weights
    kind, _, number = layout.partition(":")
    groups = int(number or 1)
    rows, columns = weights.shape[:2]
    taps = math.prod(weights.shape[2:])
    if kind == "gates":
        return _gates(weights, groups)
    if kind == "depthwise":
        return weights.reshape(rows, taps).T
    if kind == "narrow":
        return weights.reshape(rows, columns, taps).transpose(2, 1, 0).reshape(taps * columns, rows)
    if kind == "nchw":
        return weights.reshape(rows, columns * taps).T
    if kind == "winograd":
        return winograd.factors(weights).transpose(2, 1, 0).astype(weights.dtype)
    if kind == "stamp":
        return weights.reshape(rows, columns, taps).transpose(0, 2, 1).reshape(rows, taps * columns)
    stack = weights.reshape(groups, rows // groups, columns, taps)
    if kind == "dots":
        out = _lines_filled_up(stack, weights.shape[-1])
    elif kind == "window":
        out = stack.transpose(0, 3, 2, 1).reshape(groups, taps * columns, rows // groups)
    else:
        out = stack.transpose(0, 3, 1, 2).reshape(groups, taps * (rows // groups), columns)
    return out[0] if groups == 1 else out


def _whole_panels(floats: int) -> int:
    return -(-floats // PANEL) * PANEL


def _lines_filled_up(stack: Array, line: int) -> Array:
    """(group, filter, channel, tap) as (group, filter, elements), channels last, zeros behind each line of taps."""
    groups, filters, channels, taps = stack.shape
    lines = stack.transpose(0, 1, 3, 2).reshape(groups, filters, taps // line, line * channels)
    missing = _whole_panels(line * channels) - line * channels
    return np.pad(lines, ((0, 0), (0, 0), (0, 0), (0, missing))).reshape(groups, filters, -1)


def _gates(weights: Array, gates: int) -> Array:
    directions, rows, depth = weights.shape
    hidden = rows // gates
    blocks = -(-hidden // PANEL)
    stack = np.zeros((directions, gates, blocks * PANEL, depth), weights.dtype)
    stack[:, :, :hidden] = weights.reshape(directions, gates, hidden, depth)
    stack = stack.reshape(directions, gates, blocks, PANEL, depth).transpose(0, 4, 2, 1, 3)
    return stack.reshape(directions, depth, blocks * gates * PANEL)


def panel_shape(matrices: Sequence[Ix]) -> tuple[Ix, ...]:
    """The shape of the panels of a stack of matrices."""
    *stack, depth, columns = matrices
    return (*stack, (columns + (PANEL - 1)) // PANEL, depth, ix(PANEL))
