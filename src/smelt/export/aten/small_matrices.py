"""Factorizations of small matrices, and systems that are solved by substitution.

Input: calls over (batches of) matrices of a known size, at most LARGEST. Output: values. Invariant: one step per
column, written out and computed in double for a whole batch at once; pivots are LAPACK's: the first of the largest
elements. LAPACK is faster: these forms are for models that have to run without torch. ONNX cannot raise: where
torch's check of `info` would, results hold infinities or NaN.
"""

# ruff: noqa: N803  # arguments are named as in torch's schema
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from smelt.export.call import Call
from smelt.export.dtypes import DOUBLE, FLOAT, INT64
from smelt.export.records import Refused
from smelt.export.registry import converter

Value = ir.Value
LARGEST = 32


class Matrices:
    """Steps on batches of matrices, the last two axes being rows and columns."""

    def __init__(self, call: Call) -> None:
        self.call, self.op = call, call.op

    def wide(self, value: Value) -> Value:
        if value.dtype not in (FLOAT, DOUBLE):
            raise Refused("matrices of another type than float32 and float64")
        return self.call.cast(value, DOUBLE)

    def sizes(self, value: Value) -> tuple[int, int]:
        rows, columns = self.call.all_dims(value)[-2:]
        if not isinstance(rows, int) or not isinstance(columns, int) or not 0 < rows <= LARGEST >= columns > 0:
            raise Refused(f"a factorization of matrices whose size is not known, or above {LARGEST}")
        return rows, columns

    def number(self, value: float) -> Value:
        return self.call.constant(value, DOUBLE)

    def mask(self, held: Any) -> Value:
        return self.call.constant(np.asarray(held, bool), ir.DataType.BOOL)

    def row(self, value: Value, at: int) -> Value:
        return self.op("Slice", value, [at], [at + 1], [self.call.rank(value) - 2])

    def column(self, value: Value, at: int) -> Value:
        return self.op("Slice", value, [at], [at + 1], [self.call.rank(value) - 1])

    def transposed(self, value: Value) -> Value:
        rank = self.call.rank(value)
        return self.op("Transpose", value, perm=[*range(rank - 2), rank - 1, rank - 2])

    def triangle(self, value: Value, upper: bool, shift: int = 0) -> Value:
        return self.op("Trilu", value, self.call.constant(shift, INT64), upper=int(upper))

    def identity(self, size: int) -> Value:
        return self.call.constant(np.eye(size), DOUBLE)

    def eliminated(self, matrix: Value) -> tuple[Value, list[Value], Value]:
        """L (below the diagonal) and U in one matrix, the row that each step took, and the order of the rows."""
        rows, columns = self.sizes(matrix)
        order = self.op("Mul", self.op("Cast", self.column(matrix, 0), to=INT64), self.call.constant(0, INT64))
        order = self.op("Add", order, self.call.constant(np.arange(rows)[:, None], INT64))
        taken: list[Value] = []
        for step in range(min(rows, columns)):
            below = self.op("Slice", self.column(matrix, step), [step], [rows], [self.call.rank(matrix) - 2])
            largest = self.op("ArgMax", self.op("Abs", below), axis=-2, keepdims=1)
            pivot = self.op("Add", largest, self.call.constant(step, INT64))
            taken.append(pivot)
            places = self._swapped(rows, step, pivot)
            order = self.op("GatherElements", order, places, axis=-2)
            spread = self.op("Expand", places, self.op("Shape", matrix))
            matrix = self._step(self.op("GatherElements", matrix, spread, axis=-2, shape=matrix.shape), step)
        return matrix, taken, order

    def _swapped(self, rows: int, step: int, pivot: Value) -> Value:
        """Places of the rows after rows `step` and `pivot` have changed places."""
        places = self.call.constant(np.arange(rows)[:, None], INT64)
        chosen = self.op("Equal", places, pivot)
        others = self.op("Where", chosen, self.call.constant(step, INT64), places)
        return self.op("Where", self.mask(np.arange(rows)[:, None] == step), pivot, others)

    def _step(self, matrix: Value, step: int) -> Value:
        """Take the pivot's row off the rows below it; keep the factors in their place."""
        rows, columns = self.sizes(matrix)
        down, right = np.arange(rows)[:, None], np.arange(columns)[None, :]
        row = self.row(matrix, step)
        pivot = self.column(row, step)
        safe = self.op("Where", self.op("Equal", pivot, self.number(0.0)), self.number(1.0), pivot)
        factors = self.op("Div", self.column(matrix, step), safe)
        factors = self.op("Where", self.mask(down > step), factors, self.number(0.0))
        rest = self.op("Where", self.mask(right > step), row, self.number(0.0))
        left = self.op("Sub", matrix, self.op("Mul", factors, rest))
        kept = self.mask((down > step) & (right == step))
        return self.op("Where", kept, factors, left, shape=matrix.shape)

    def solved(self, triangle: Value, right: Value, upper: bool, unit: bool = False) -> Value:
        """`triangle` x = `right`, row by row. What lies in the other triangle is not looked at."""
        size = self.sizes(triangle)[0]
        steps = range(size - 1, -1, -1) if upper else range(size)
        found: dict[int, Value] = {}
        places = np.arange(size)[:, None]
        for step in steps:
            row = self.row(right, step)
            diagonal = self.column(self.row(triangle, step), step)
            found[step] = row if unit else self.op("Div", row, diagonal)
            rest = self.mask(places < step if upper else places > step)
            column = self.op("Where", rest, self.column(triangle, step), self.number(0.0))
            right = self.op("Sub", right, self.op("Mul", column, found[step]))
            if step != steps[-1]:
                right = self.ranked(right, triangle, found[step])
        return self.op("Concat", *(found[at] for at in range(size)), axis=-2)

    def ranked(self, value: Value, *operands: Value) -> Value:
        """State the rank, which broadcasting over batches does not always tell."""
        if value.shape is None:
            value.shape = ir.Shape([None] * max(self.call.rank(operand) for operand in operands))
        return value

    def by_factors(self, factors: Value, order: Value, right: Value, adjoint: bool = False) -> Value:
        """Solve by L and U: the rows of `right` in order, then two substitutions; or all of it backwards."""
        swaps = self.permutation(order, self.sizes(factors)[0])
        if adjoint:
            flipped = self.transposed(factors)
            inner = self.solved(flipped, right, upper=False)
            outer = self.solved(flipped, inner, upper=True, unit=True)
            return self.op("MatMul", swaps, outer)
        forward = self.op("MatMul", self.transposed(swaps), right)
        return self.solved(factors, self.solved(factors, forward, upper=False, unit=True), upper=True)

    def permutation(self, order: Value, rows: int) -> Value:
        """P of A = P L U: its column k has a one where row k of L U came from."""
        places = self.call.constant(np.arange(rows)[None, :], INT64)
        return self.transposed(self.op("Cast", self.op("Equal", order, places), to=DOUBLE))

    def order_of(self, pivots: Value, rows: int) -> Value:
        """The order of the rows that a list of LAPACK's pivots (counted from one) makes."""
        steps = self.call.dim(pivots, -1)
        if not isinstance(steps, int) or steps > LARGEST:
            raise Refused("pivots whose number is not known")
        taken = self.op("Sub", self.call.cast(pivots, INT64), self.call.constant(1, INT64))
        taken = self.op("Unsqueeze", taken, [-1])
        zero = self.op("Mul", self.row(taken, 0), self.call.constant(0, INT64))
        order = self.op("Add", zero, self.call.constant(np.arange(rows)[:, None], INT64))
        for step in range(steps):
            order = self.op("GatherElements", order, self._swapped(rows, step, self.row(taken, step)), axis=-2)
        return order


@converter("aten::linalg_lu_factor_ex", standalone=True)
def lu_factor_ex(call: Call, A: Value, pivot: bool = True) -> list[Value]:
    if not pivot:
        raise Refused("a factorization without pivots")
    if _is_empty(call, A):
        return _nothing(call)
    m = Matrices(call)
    factors, taken, _ = m.eliminated(m.wide(A))
    return [factors, _pivots(m, taken), _first_zero(m, factors, len(taken))]


@converter("aten::linalg_lu", standalone=True)
def lu(call: Call, A: Value, pivot: bool = True) -> list[Value]:
    if not pivot:
        raise Refused("a factorization without pivots")
    m = Matrices(call)
    factors, _, order = m.eliminated(m.wide(A))
    return [m.permutation(order, m.sizes(factors)[0]), *_unpacked(m, factors)]


@converter("aten::lu_unpack", standalone=True)
def lu_unpack(
    call: Call, LU_data: Value, LU_pivots: Value, unpack_data: bool = True, unpack_pivots: bool = True
) -> list[Value]:
    m = Matrices(call)
    rows, _ = m.sizes(LU_data)
    none = call.filled([0], 0.0)
    swaps = m.permutation(m.order_of(LU_pivots, rows), rows) if unpack_pivots else none
    return [swaps, *(_unpacked(m, m.wide(LU_data)) if unpack_data else [none, none])]


@converter("aten::linalg_lu_solve", standalone=True)
def lu_solve(call: Call, LU: Value, pivots: Value, B: Value, left: bool = True, adjoint: bool = False) -> Value:
    m = Matrices(call)
    factors, right = m.wide(LU), m.wide(B)
    order = m.order_of(pivots, m.sizes(factors)[0])
    if left:
        return m.by_factors(factors, order, right, adjoint)
    return m.transposed(m.by_factors(factors, order, m.transposed(right), not adjoint))


@converter("aten::linalg_inv_ex", standalone=True)
def inv_ex(call: Call, A: Value) -> list[Value]:
    if _is_empty(call, A):
        return _nothing(call)
    m = Matrices(call)
    factors, taken, order = m.eliminated(m.wide(A))
    inverse = m.by_factors(factors, order, m.identity(len(taken)))
    return [inverse, _first_zero(m, factors, len(taken))]


@converter("aten::linalg_inv", "aten::inverse", standalone=True)
def inverse(call: Call) -> Value:
    matrices = call.arguments["A"] if "A" in call.arguments else call.arguments["self"]
    if _is_empty(call, matrices):
        return matrices
    m = Matrices(call)
    factors, taken, order = m.eliminated(m.wide(matrices))
    return m.by_factors(factors, order, m.identity(len(taken)))


@converter("aten::linalg_solve", standalone=True)
def solve(call: Call, A: Value, B: Value, left: bool = True) -> Value:
    if call.rank(B) == 1 or call.rank(B) < call.rank(A):
        raise Refused("a system whose right sides are vectors")
    m = Matrices(call)
    matrices, right = (m.wide(A), m.wide(B)) if left else (m.transposed(m.wide(A)), m.transposed(m.wide(B)))
    factors, _, order = m.eliminated(matrices)
    found = m.by_factors(factors, order, right)
    return found if left else m.transposed(found)


@converter("aten::linalg_det", "aten::det", "aten::logdet", standalone=True)
def determinant(call: Call) -> Value:
    sign, size = _signed_logarithm(call)
    if call.name == "aten::logdet":
        negative = call.op("Less", sign, call.constant(0.0, DOUBLE))
        return call.op("Where", negative, call.constant(np.nan, DOUBLE), size)
    return call.op("Mul", sign, call.op("Exp", size))


@converter("aten::linalg_slogdet", "aten::slogdet", standalone=True)
def slogdet(call: Call) -> list[Value]:
    return list(_signed_logarithm(call))


def _signed_logarithm(call: Call) -> tuple[Value, Value]:
    """The determinant's sign and the logarithm of its size: of the pivots, transposed once by each exchange of rows."""
    m = Matrices(call)
    factors, taken, _ = m.eliminated(m.wide(call.arguments["A"] if "A" in call.arguments else call.arguments["self"]))
    steps = len(taken)
    diagonal = m.op("Concat", *(m.column(m.row(factors, at), at) for at in range(steps)), axis=-1)
    exchanged = [m.op("Equal", row, m.call.constant(at, INT64)) for at, row in enumerate(taken)]
    still = m.op("Cast", m.op("Concat", *exchanged, axis=-1), to=DOUBLE)
    row_swaps = m.op("Sub", m.op("Mul", still, m.number(2.0)), m.number(1.0))
    signs = m.op("Mul", m.op("Sign", diagonal), row_swaps)
    sign = m.op("ReduceProd", signs, [-2, -1], keepdims=0)
    return sign, m.op("ReduceSum", m.op("Log", m.op("Abs", diagonal)), [-2, -1], keepdims=0)


@converter("aten::linalg_cholesky", standalone=True)
def cholesky(call: Call, self: Value, upper: bool = False) -> Value:
    return cholesky_ex(call, self, upper)[0]


@converter("aten::linalg_solve_triangular", standalone=True)
def solve_triangular(
    call: Call, self: Value, B: Value, upper: bool, left: bool = True, unitriangular: bool = False
) -> Value:
    m = Matrices(call)
    triangle, right = m.wide(self), m.wide(B)
    if left:
        return m.solved(triangle, right, upper, unitriangular)
    return m.transposed(m.solved(m.transposed(triangle), m.transposed(right), not upper, unitriangular))


@converter("aten::triangular_solve", standalone=True)
def triangular_solve(
    call: Call, self: Value, A: Value, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> list[Value]:
    m = Matrices(call)
    triangle = m.wide(A)
    triangle, upper = (m.transposed(triangle), not upper) if transpose else (triangle, upper)
    copy = call.expand(A, [*call.dims[:-2], *call.all_dims(A)[-2:]])
    return [m.solved(triangle, m.wide(self), upper, unitriangular), copy]


@converter("aten::linalg_cholesky_ex", standalone=True)
def cholesky_ex(call: Call, self: Value, upper: bool = False) -> list[Value]:
    """A = L L'. Only one triangle of A is looked at."""
    if _is_empty(call, self):
        return _nothing(call)
    m = Matrices(call)
    rest = m.transposed(m.wide(self)) if upper else m.wide(self)
    size = m.sizes(self)[0]
    columns: list[Value] = []
    pivots: list[Value] = []
    for step in range(size):
        pivots.append(m.column(m.row(rest, step), step))
        scaled = m.op("Div", m.column(rest, step), m.op("Sqrt", pivots[-1]))
        here = m.mask(np.arange(size)[:, None] >= step)
        columns.append(m.op("Where", here, scaled, m.number(0.0)))
        if step + 1 < size:
            outer = m.op("Mul", columns[-1], m.transposed(m.ranked(columns[-1], self)))
            rest = m.op("Sub", rest, outer, shape=self.shape)
    factor = m.ranked(m.op("Concat", *columns, axis=-1), self)
    held = m.op("Not", m.op("Greater", m.op("Concat", *pivots, axis=-1), m.number(0.0)))
    return [m.transposed(factor) if upper else factor, _first(m, held, size)]


@converter("aten::cholesky_solve", standalone=True)
def cholesky_solve(call: Call, self: Value, input2: Value, upper: bool = False) -> Value:
    m = Matrices(call)
    factor = m.wide(input2)
    lower = m.transposed(factor) if upper else factor
    return m.solved(m.transposed(lower), m.solved(lower, m.wide(self), upper=False), upper=True)


@converter("aten::cholesky_inverse", standalone=True)
def cholesky_inverse(call: Call, self: Value, upper: bool = False) -> Value:
    m = Matrices(call)
    factor = m.wide(self)
    lower = m.transposed(factor) if upper else factor
    half = m.solved(lower, m.identity(m.sizes(factor)[0]), upper=False)
    return m.solved(m.transposed(lower), half, upper=True)


def _pivots(m: Matrices, taken: Sequence[Value]) -> Value:
    """Counted from one, a list for each matrix."""
    joined = m.op("Squeeze", m.op("Concat", *taken, axis=-2), [-1])
    return m.op("Add", joined, m.call.constant(1, INT64))


def _unpacked(m: Matrices, factors: Value) -> list[Value]:
    rows, columns = m.sizes(factors)
    steps = min(rows, columns)
    last = m.call.rank(factors) - 1
    lower = m.triangle(m.op("Slice", factors, [0], [steps], [last]), upper=False, shift=-1)
    upper = m.triangle(m.op("Slice", factors, [0], [steps], [last - 1]), upper=True)
    return [m.op("Add", lower, m.call.constant(np.eye(rows, steps), DOUBLE)), upper]


def _first_zero(m: Matrices, factors: Value, steps: int) -> Value:
    """LAPACK's info: the first pivot that is zero, counted from one; 0 if there is none."""
    parts = [m.column(m.row(factors, at), at) for at in range(steps)]
    return _first(m, m.op("Equal", m.op("Concat", *parts, axis=-1), m.number(0.0)), steps)


def _first(m: Matrices, held: Value, steps: int) -> Value:
    """The place of the first that holds along the last axis, counted from one; 0 if none does."""
    number = m.op("Where", held, m.call.constant(np.arange(1, steps + 1), INT64), m.call.constant(steps + 1, INT64))
    first = m.op("ReduceMin", number, [-2, -1], keepdims=0)
    return m.op("Mod", first, m.call.constant(steps + 1, INT64))


def _is_empty(call: Call, matrices: Value) -> bool:
    return 0 in call.all_dims(matrices)[-2:]


def _nothing(call: Call) -> list[Value]:
    """Factors of matrices without elements, and zeros where LAPACK says that all went well."""
    return [call.filled(out.dims, 0, out.dtype) for out in call.outs]
