"""Packs constant GEMM weights into the panel layout that `gemm.h` reads.

Input: a float32 matrix B (K x N, any strides, a memory map is fine), or a stack of them (..., K, N).
Output: panels of 16 columns, `packed[..., p, k, j] = B[..., k, 16 * p + j]`, C-contiguous, zero beyond N.
Invariant: values are copied bit for bit, and `iter_packed` never holds more than one chunk of panels.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from .arrangement import PANEL

CHUNK_BYTES = 16 << 20

Matrix = npt.NDArray[np.float32]


def panel_count(columns: int) -> int:
    return -(-columns // PANEL)


def packed_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the packed form of a matrix, or stack of matrices, of the given shape."""
    *stack, depth, columns = shape
    return (*stack, panel_count(columns), depth, PANEL)


def _pack_range(b: Matrix, first: int, last: int, out: Matrix) -> None:
    """Panels first..last-1 of one matrix into `out` (last - first, K, 16)."""
    depth, columns = b.shape
    whole = min(last, columns // PANEL)
    if whole > first:
        block = b[:, first * PANEL : whole * PANEL].reshape(depth, whole - first, PANEL)
        out[: whole - first] = block.transpose(1, 0, 2)
    if whole < last:
        left = columns - whole * PANEL
        out[-1, :, :left] = b[:, whole * PANEL :]
        out[-1, :, left:] = 0


def _matrices(b: Matrix) -> Iterator[Matrix]:
    for index in np.ndindex(*b.shape[:-2]):
        yield b[index]


def _checked(b: Matrix) -> Matrix:
    if b.dtype != np.float32 or b.ndim < 2:
        raise ValueError(f"expected a float32 matrix, got {b.dtype} of rank {b.ndim}")
    return b


def pack(b: Matrix) -> Matrix:
    """Packs the whole of `b` at once."""
    out = np.empty(packed_shape(_checked(b).shape), np.float32)
    panels = panel_count(b.shape[-1])
    for matrix, target in zip(_matrices(b), _stack(out), strict=True):
        _pack_range(matrix, 0, panels, target)
    return out


def _stack(packed: Matrix) -> Iterator[Matrix]:
    for index in np.ndindex(*packed.shape[:-3]):
        yield packed[index]


def iter_packed(b: Matrix, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Matrix]:
    """Yields the packed form in consecutive pieces of whole panels, for weights too large to hold twice.

    A piece is valid until the next one is asked for: the buffer is reused.
    """
    depth, columns = _checked(b).shape[-2:]
    panels = panel_count(columns)
    step = max(1, chunk_bytes // max(1, depth * PANEL * 4))
    buffer = np.empty((min(step, panels), depth, PANEL), np.float32)
    for matrix in _matrices(b):
        for first in range(0, panels, step):
            last = min(first + step, panels)
            piece = buffer[: last - first]
            _pack_range(matrix, first, last, piece)
            yield piece


def unpack(packed: Matrix, columns: int) -> Matrix:
    """The matrix, or stack of matrices, that was packed."""
    *stack, panels, depth, width = packed.shape
    if width != PANEL or panel_count(columns) != panels:
        raise ValueError(f"{packed.shape} does not hold {columns} columns in panels of {PANEL}")
    rows = np.moveaxis(packed, -2, -3).reshape(*stack, depth, panels * PANEL)
    return np.ascontiguousarray(rows[..., :columns])
