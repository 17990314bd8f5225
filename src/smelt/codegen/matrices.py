"""Operands of a product as plain matrices, where the right one is a matrix that all rows of all batches share.

Input: where the operands lie, in the product's loop variables. Output: both as `Matrix`, or None. Invariant: rows are
counted through all axes but the last, and each is as far from the one before as every other.
"""

from __future__ import annotations

from collections.abc import Sequence

from smelt.ir.kernel import Ix, Val, Var, ix, of
from smelt.ir.kernel.index import Atom, coefficient, substitute
from smelt.ir.kernel.layout import Index
from smelt.ir.kernel.tensor import aligned

from .cluster import Matrix, Operand


def matrix_index(over: Sequence[Var], shape: Index) -> Index:
    """The index of a product's operand: leading axes may be broadcast, those of the matrix are its own."""
    whole = [*(v.extent for v in over[:-2]), *shape[-2:]]
    return aligned(tuple(of(v) for v in over), shape, whole)


def matrices_of(left: Operand, right: Operand, loops: Sequence[Var], depth: Var) -> tuple[Matrix, Matrix] | None:
    """The left operand with all rows of all batches, and the right one."""
    a, b = _matrix(left, loops[:-1], depth), _matrix(right, [depth], loops[-1])
    return None if a is None or b is None else (a, b)


def _matrix(operand: Operand, rows: Sequence[Var], column: Var) -> Matrix | None:
    """None where rows are not evenly apart."""
    across = _step(operand.offset, column)
    down = _even_step(operand.offset, rows)
    if across is None or down is None:
        return None
    none: dict[Atom, Ix] = {v: ix(0) for v in (*rows, column)}
    start = substitute(operand.offset, none)
    return Matrix(operand.buffer, start, down, across)


def _even_step(offset: Ix, rows: Sequence[Var]) -> Ix | None:
    moving = [v for v in rows if v.extent.const != 1]
    if not moving:
        return ix(0)
    down = _step(offset, moving[-1])
    apart = down
    for inner, outer in zip(reversed(moving), reversed(moving[:-1]), strict=False):
        step = _step(offset, outer)
        if apart is None or step is None or step != apart * inner.extent:
            return None
        apart = step
    return down


def _step(offset: Ix, var: Var) -> Ix | None:
    if var.extent.const == 1:
        return ix(0)
    found = coefficient(offset, var)
    return None if found is None or any(isinstance(a, Var) for a in found[0].atoms) else found[0]


def is_steady(offset: Ix, matrix: Sequence[Var], contiguous: Var | None) -> bool:
    """Whether the offset grows by constant steps along the axes of a matrix, and by 1 along `contiguous`."""
    if any(isinstance(a, Val) for a in offset.atoms):
        return False
    steps = [coefficient(offset, v) for v in matrix]
    if any(s is None for s in steps):
        return False
    inner = coefficient(offset, contiguous) if contiguous is not None else None
    return contiguous is None or (inner is not None and inner[0] == 1)
