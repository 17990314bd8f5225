"""How the weights of a product become matrices, and matrices panels: data movements that are stated once.

Input: the shape of a constant and the name of an arrangement. Output: steps, which are run over an array
(`moved_array`), over a tensor of the tensor language (`moved_tensor`) or as nodes of a model (codegen/packing.py).
Invariant: steps copy; only zeros are added.

| arrangement | constant | matrices |
|---|---|---|
| plain | (K, N) | (K, N) |
| transposed | (N, K) | (K, N) |
| window | (G * M, C, *taps) | (G, taps * C, M): a convolution in G groups |
| dots | (G * M, C, *taps) | (G, M, lines * C * line): each line of taps filled up with zeros to whole panels |
| narrow | (G * M, C, *taps) | (taps * C, G * M): a convolution in narrow groups, side by side |
| depthwise | (C, 1, *taps) | (taps, C): a convolution with one filter for each channel |
| nchw | (M, C, *taps) | (C * taps, M): a convolution of an image in NCHW |
| spread | (G * C, M, *taps) | (G, taps * C, M): a transposed convolution in G groups |
| stamp | (C, M, *taps) | (C, taps * M): a transposed convolution whose windows do not overlap |
| gates | (D, G * H, K) | (D, K, blocks * G * 16): a block is 16 units, of which all gates follow each other |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from smelt.ir.kernel import Builder, Tensor, ix

PANEL: Final = 16
MATRICES: Final = ("plain", "transposed")
_GROUPED: Final = ("window", "spread", "dots")
Array = np.ndarray[Any, Any]
Step = tuple[str, list[int]]  # Reshape to sizes, Transpose by a permutation, Pad with zeros before and behind each axis


def to_matrices(shape: Sequence[int], arrangement: str, groups: int) -> list[Step] | None:
    """None where the arrangement does not fit the constant."""
    if arrangement in MATRICES:
        steps: list[Step] = [] if arrangement == "plain" else [("Transpose", [1, 0])]
        return steps if len(shape) == 2 else None
    if len(shape) < 3 or not _fits(shape, arrangement, groups):
        return None
    if arrangement == "gates":
        return _gates(shape, groups)
    rows, columns, taps = shape[0], shape[1], math.prod(shape[2:])
    if arrangement == "dots":
        return _dots(shape, groups)
    if arrangement == "nchw":
        return [("Reshape", [rows, columns * taps]), ("Transpose", [1, 0])]
    if arrangement == "depthwise":
        return [("Reshape", [rows, taps]), ("Transpose", [1, 0])]
    each = rows // groups
    split, order, matrices = {
        "narrow": ([rows, columns, taps], [2, 1, 0], [taps * columns, rows]),
        "stamp": ([rows, columns, taps], [0, 2, 1], [rows, taps * columns]),
        "window": ([groups, each, columns, taps], [0, 3, 2, 1], [groups, taps * columns, each]),
        "spread": ([groups, each, columns, taps], [0, 3, 1, 2], [groups, taps * each, columns]),
    }[arrangement]
    return [("Reshape", split), ("Transpose", order), ("Reshape", _stacked(matrices, arrangement, groups))]


def _fits(shape: Sequence[int], arrangement: str, groups: int) -> bool:
    if arrangement == "gates":
        return len(shape) == 3 and shape[1] % groups == 0
    return shape[1] == 1 if arrangement == "depthwise" else shape[0] % groups == 0


def _stacked(matrices: list[int], arrangement: str, groups: int) -> list[int]:
    """One group needs no axis."""
    return matrices[1:] if arrangement in _GROUPED and groups == 1 else matrices


def _dots(shape: Sequence[int], groups: int) -> list[Step]:
    rows, columns, taps = shape[0], shape[1], math.prod(shape[2:])
    each, line, lines = rows // groups, columns * shape[-1], taps // shape[-1]
    missing = -line % PANEL
    matrices = _stacked([groups, each, lines * (line + missing)], "dots", groups)
    return [
        ("Reshape", [groups, each, columns, taps]),
        ("Transpose", [0, 1, 3, 2]),
        ("Reshape", [groups, each, lines, line]),
        ("Pad", [0] * 7 + [missing]),
        ("Reshape", matrices),
    ]


def _gates(shape: Sequence[int], gates: int) -> list[Step]:
    """Units filled up to whole blocks, then block by block with all gates of each."""
    directions, hidden, depth = shape[0], shape[1] // gates, shape[2]
    missing = -hidden % PANEL
    blocks = (hidden + missing) // PANEL
    return [
        ("Reshape", [directions, gates, hidden, depth]),
        *([("Pad", [0, 0, 0, 0, 0, 0, missing, 0])] if missing else []),
        ("Reshape", [directions, gates, blocks, PANEL, depth]),
        ("Transpose", [0, 4, 2, 1, 3]),
        ("Reshape", [directions, depth, blocks * gates * PANEL]),
    ]


def to_panels(matrices: Sequence[int]) -> list[Step]:
    """Columns filled up, then panel by panel."""
    *stack, depth, columns = matrices
    missing, rank = -columns % PANEL, len(matrices)
    return [
        *([("Pad", [0] * (2 * rank - 1) + [missing])] if missing else []),
        ("Reshape", [*stack, depth, (columns + missing) // PANEL, PANEL]),
        ("Transpose", [*range(len(stack)), rank - 1, rank - 2, rank]),
    ]


def moved_shape(shape: Sequence[int], steps: Sequence[Step]) -> tuple[int, ...]:
    sizes = list(shape)
    for step, argument in steps:
        if step == "Reshape":
            sizes = argument
        elif step == "Transpose":
            sizes = [sizes[p] for p in argument]
        else:
            rank = len(sizes)
            sizes = [size + argument[axis] + argument[axis + rank] for axis, size in enumerate(sizes)]
    return tuple(sizes)


def moved_array(array: Array, steps: Sequence[Step]) -> Array:
    for step, argument in steps:
        if step == "Reshape":
            array = array.reshape(argument)
        elif step == "Transpose":
            array = array.transpose(argument)
        else:
            array = np.pad(array, list(zip(argument[: array.ndim], argument[array.ndim :], strict=True)))
    return array


def moved_tensor(k: Builder, x: Tensor, steps: Sequence[Step]) -> Tensor:
    for step, argument in steps:
        if step == "Reshape":
            x = k.reshape(x, [ix(size) for size in argument])
        elif step == "Transpose":
            x = k.transpose(x, argument)
        else:
            x = k.pad(x, argument[: x.rank], argument[x.rank :], 0)
    return x
