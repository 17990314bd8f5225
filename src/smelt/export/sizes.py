"""Symbolic sizes -> small integer subgraphs.

Input: sympy expressions over the symbols of the FX graph. Output: int64, double or bool values, made once per
expression and scope. Invariant: a symbol is read from the shape of a tensor where one has it, else from the scalar that
introduced it. All arithmetic is on tensors of shape [1], which is what shape operands are concatenated from.
"""

# What torch and sympy hand over is not annotated.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Final

import onnx_ir as ir
import sympy
import torch

from smelt.export.builder import Builder
from smelt.export.dtypes import BOOL, DOUBLE, INT64
from smelt.export.records import Refused

Expr = Any
Dim = Any
"""An int, or a sympy expression."""


def dim_of(size: Any) -> Dim:
    """An int, a float, a bool or an expression, from what torch gives as a size or scalar."""
    if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        size = size.node.expr
    if isinstance(size, sympy.Integer):
        return int(size)
    if isinstance(size, sympy.Float):
        return float(size)
    if isinstance(size, sympy.logic.boolalg.BooleanAtom):
        return bool(size)
    return size


def dim_text(dim: Dim, names: Any = None) -> int | str:
    if isinstance(dim, int):
        return dim
    if names:
        dim = dim.xreplace({s: sympy.Symbol(names[str(s)], integer=True) for s in dim.free_symbols if str(s) in names})
    return str(dim)


class Sizes:
    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self._axes: dict[Expr, tuple[ir.Value, int]] = {}
        self._scalars: dict[Expr, ir.Value] = {}
        self._texts: dict[str, Expr] = {}
        self._derived: dict[Expr, Expr] = {}

    @contextmanager
    def inside(self) -> Generator[None, None, None]:
        """What is learnt meanwhile is forgotten: it holds in a subgraph alone."""
        kept = dict(self._axes), dict(self._scalars), dict(self._derived)
        try:
            yield
        finally:
            self._axes, self._scalars, self._derived = kept

    def mark(self) -> tuple[int, ...]:
        return tuple(len(learnt) for learnt in (self._axes, self._scalars, self._derived))

    def rewind(self, mark: tuple[int, ...]) -> None:
        """Forget what was learnt since `mark`."""
        for learnt, size in zip((self._axes, self._scalars, self._derived), mark, strict=True):
            while len(learnt) > size:
                learnt.popitem()

    # Where symbols come from

    def learn_shape(self, value: ir.Value, dims: Sequence[Dim], names: Any = None) -> None:
        for axis, dim in enumerate(dims):
            if not isinstance(dim, int):
                self._texts.setdefault(str(dim_text(dim, names)), dim)
                if dim not in self._axes:
                    self._axes[dim] = (value, axis)
                    self._solve(dim, value, axis)

    def learn_scalar(self, value: ir.Value, expr: Expr) -> None:
        self._scalars.setdefault(expr, value)

    def fresh(self, value: ir.Value) -> Expr:
        """A new symbol that stands for an int64 scalar."""
        symbol = sympy.Symbol(f"{value.name}", integer=True)
        self._scalars[symbol] = value
        return symbol

    def _solve(self, dim: Expr, value: ir.Value, axis: int) -> None:
        """A size such as `2*s0 + 1` tells `s0`, when nothing else does."""
        symbols = [s for s in dim.free_symbols if s not in self._axes and s not in self._scalars]
        if dim.is_Symbol or len(symbols) != 1 or len(dim.free_symbols) != 1:
            return
        stand_in = sympy.Symbol(f"_{value.name}_{axis}", integer=True)
        slope, rest = dim.as_coeff_mul(symbols[0]) if not dim.is_Add else (None, None)
        poly = sympy.Poly(dim, symbols[0]) if rest is None and dim.is_polynomial(symbols[0]) else None
        if poly is not None and poly.degree() == 1:
            slope, offset = poly.all_coeffs()
        elif rest == (symbols[0],):
            offset = 0
        else:
            return
        self._axes[stand_in] = (value, axis)
        self._derived[symbols[0]] = sympy.floor((stand_in - offset) / slope)

    def known(self, expr: Expr) -> bool:
        """Whether the expression can be computed from what was learnt."""
        if not isinstance(expr, sympy.Basic) or expr in self._axes or expr in self._scalars or expr in self._derived:
            return True
        return (bool(expr.args) and all(self.known(arg) for arg in expr.args)) or expr.is_number

    def parse(self, text: str) -> Expr | None:
        """The expression that a dimension's text stands for, if it came from the FX graph."""
        return self._texts.get(text)

    def of(self, value: ir.Value, axis: int) -> Dim:
        """The size of an axis: an int, or an expression."""
        if value.shape is None:
            raise Refused(f"the rank of {value.name} is not known")
        axis %= max(len(value.shape), 1)
        size = value.shape[axis]
        if isinstance(size, int):
            return size
        known = self._texts.get(str(size.value))
        if known is not None:
            return known
        symbol = sympy.Symbol(f"{value.name}.{axis}", integer=True)
        self._axes.setdefault(symbol, (value, axis))
        return symbol

    # Values

    def vector(self, dims: Iterable[Dim]) -> ir.Value:
        """An int64 vector of sizes: a constant when all are known."""
        items = [dim_of(dim) for dim in dims]
        if all(isinstance(item, int) for item in items):
            return self.builder.constant(items, INT64)
        if len(items) == 1:
            return self.piece(items[0])
        return self.builder.op("Concat", *self._pieces(items), axis=0, shape=[len(items)])

    def _pieces(self, items: list[Dim]) -> list[ir.Value]:
        pieces: list[ir.Value] = []
        run: list[int] = []
        for item in items:
            if isinstance(item, int):
                run.append(item)
                continue
            if run:
                pieces.append(self.builder.constant(run, INT64))
                run = []
            pieces.append(self.piece(item))
        return [*pieces, self.builder.constant(run, INT64)] if run else pieces

    def scalar(self, expr: Dim, dtype: ir.DataType | None = None) -> ir.Value:
        """A number or an expression as a 0-d tensor."""
        expr = dim_of(expr)
        if isinstance(expr, ir.Value):
            return self.builder.cast(expr, dtype) if dtype is not None else expr
        if not isinstance(expr, sympy.Basic):
            return self.builder.constant(expr, dtype or _number_type(expr))
        found = None if self._is_input_size(expr) else self._scalars.get(expr)
        if found is None:
            piece = self.piece(expr)
            found = self.builder.remember(("scalar", expr), lambda: self._squeezed(piece))
        return self.builder.cast(found, dtype) if dtype is not None else found

    def _is_input_size(self, expr: Expr) -> bool:
        """Whether an input's shape tells it: then what is made of it is known to have that very size."""
        return expr in self._axes and self._axes[expr][0].producer() is None

    def _squeezed(self, piece: ir.Value) -> ir.Value:
        return self.builder.op("Squeeze", piece, [0], shape=[])

    def piece(self, expr: Dim) -> ir.Value:
        """A number or an expression as a tensor of shape [1]."""
        expr = dim_of(expr)
        if isinstance(expr, ir.Value):  # a number that a node has computed
            return self.builder.op("Reshape", self.builder.cast(expr, INT64), [1], shape=[1])
        if not isinstance(expr, sympy.Basic):
            return self.builder.constant([expr], _number_type(expr))
        return self.builder.remember(("size", expr), lambda: self._made(expr))

    def _made(self, expr: Expr) -> ir.Value:
        if expr in self._axes:
            value, axis = self._axes[expr]
            return self.builder.op("Shape", value, start=axis, end=axis + 1, shape=[1])
        if expr in self._scalars:
            return self.builder.op("Unsqueeze", self._scalars[expr], [0], shape=[1])
        if expr in self._derived:
            return self.piece(self._derived[expr])
        if expr.is_number and not expr.args:
            return self.builder.constant([float(expr)], DOUBLE)
        rule = _RULES.get(type(expr).__name__)
        if rule is None or not expr.args:
            raise Refused(f"the size {expr} cannot be computed from the inputs")
        return rule(self, *expr.args)

    def floats(self, expr: Expr) -> ir.Value:
        return self.builder.cast(self.piece(expr), DOUBLE)

    def both(self, left: ir.Value, right: ir.Value) -> tuple[ir.Value, ir.Value]:
        if left.dtype == right.dtype:
            return left, right
        return self.builder.cast(left, DOUBLE), self.builder.cast(right, DOUBLE)

    def fold(self, op_type: str, *args: Expr) -> ir.Value:
        result = self.piece(args[0])
        for arg in args[1:]:
            result = self.builder.op(op_type, *self.both(result, self.piece(arg)), shape=[1])
        return result


def _number_type(number: Any) -> ir.DataType:
    if isinstance(number, bool):
        return BOOL
    return INT64 if isinstance(number, int) else DOUBLE


def _folded(op_type: str) -> Callable[..., ir.Value]:
    return lambda sizes, *args: sizes.fold(op_type, *args)


def _mul(sizes: Sizes, *args: Expr) -> ir.Value:
    """A product; a rational factor p/q divides at the end, exactly when torch says that the result is an integer."""
    top = [a.p if a.is_Rational and not a.is_Integer else a for a in args]
    bottom = [a.q for a in args if a.is_Rational and not a.is_Integer]
    product = sizes.fold("Mul", *[dim_of(sympy.sympify(a)) for a in top if a != 1] or [1])
    if not bottom:
        return product
    return sizes.builder.op("Div", product, sizes.piece(int(bottom[0])), shape=[1])


def _floor_division(sizes: Sizes, top: Expr, bottom: Expr) -> ir.Value:
    """Sizes are not negative in what torch divides; a negative numerator is still rounded down."""
    b = sizes.builder
    numerator, denominator = sizes.piece(top), sizes.piece(bottom)
    if getattr(top, "is_nonnegative", False) and getattr(sympy.sympify(bottom), "is_positive", False):
        return b.op("Div", numerator, denominator, shape=[1])
    rest = b.op("Mod", numerator, denominator, shape=[1])
    return b.op("Div", b.op("Sub", numerator, rest, shape=[1]), denominator, shape=[1])


def _floor(sizes: Sizes, inner: Expr) -> ir.Value:
    top, bottom = inner.as_numer_denom()
    if bottom != 1 and top.is_integer and bottom.is_integer:
        return _floor_division(sizes, top, bottom)
    return sizes.builder.cast(sizes.builder.op("Floor", sizes.floats(inner), shape=[1]), INT64)


def _ceiling(sizes: Sizes, inner: Expr) -> ir.Value:
    return sizes.piece(-sympy.floor(-inner, evaluate=False))


def _modulo(sizes: Sizes, top: Expr, bottom: Expr) -> ir.Value:
    return sizes.builder.op("Mod", sizes.piece(top), sizes.piece(bottom), shape=[1])


def _modular_indexing(sizes: Sizes, base: Expr, divisor: Expr, modulus: Expr) -> ir.Value:
    quotient = _floor_division(sizes, base, divisor)
    return sizes.builder.op("Mod", quotient, sizes.piece(modulus), shape=[1])


def _power(sizes: Sizes, base: Expr, exponent: Expr) -> ir.Value:
    if exponent == -1:
        return sizes.builder.op("Reciprocal", sizes.floats(base), shape=[1])
    if exponent.is_Integer and 0 < exponent <= 8:
        return sizes.fold("Mul", *[base] * int(exponent))
    return sizes.builder.op("Pow", sizes.floats(base), sizes.floats(exponent), shape=[1])


def _true_division(sizes: Sizes, top: Expr, bottom: Expr) -> ir.Value:
    return sizes.builder.op("Div", sizes.floats(top), sizes.floats(bottom), shape=[1])


def _real(op_type: str) -> Callable[..., ir.Value]:
    return lambda sizes, x: sizes.builder.op(op_type, sizes.floats(x), shape=[1])


def _to_int(op_type: str | None) -> Callable[..., ir.Value]:
    def rule(sizes: Sizes, x: Expr) -> ir.Value:
        value = sizes.floats(x)
        return sizes.builder.cast(sizes.builder.op(op_type, value, shape=[1]) if op_type else value, INT64)

    return rule


def _where(sizes: Sizes, condition: Expr, then: Expr, otherwise: Expr) -> ir.Value:
    chosen = sizes.both(sizes.piece(then), sizes.piece(otherwise))
    return sizes.builder.op("Where", sizes.piece(condition), *chosen, shape=[1])


def _compare(op_type: str) -> Callable[..., ir.Value]:
    return lambda sizes, a, b: sizes.builder.op(op_type, *sizes.both(sizes.piece(a), sizes.piece(b)), shape=[1])


def _differ(sizes: Sizes, a: Expr, b: Expr) -> ir.Value:
    return sizes.builder.op("Not", _compare("Equal")(sizes, a, b), shape=[1])


_RULES: Final[dict[str, Callable[..., ir.Value]]] = {
    "Add": _folded("Add"), "Mul": _mul, "Max": _folded("Max"), "Min": _folded("Min"), "Pow": _power,
    "PowByNatural": _power, "FloatPow": _power, "FloorDiv": _floor_division, "CleanDiv": _floor_division,
    "floor": _floor, "ceiling": _ceiling, "Mod": _modulo, "PythonMod": _modulo, "ModularIndexing": _modular_indexing,
    "IntTrueDiv": _true_division, "FloatTrueDiv": _true_division, "ToFloat": lambda sizes, x: sizes.floats(x),
    "TruncToInt": _to_int(None), "FloorToInt": _to_int("Floor"), "CeilToInt": _to_int("Ceil"),
    "RoundToInt": _to_int("Round"), "Identity": lambda sizes, x: sizes.piece(x), "Where": _where,
    "OpaqueUnaryFn_sqrt": _real("Sqrt"), "OpaqueUnaryFn_log": _real("Log"), "OpaqueUnaryFn_exp": _real("Exp"),
    "OpaqueUnaryFn_sin": _real("Sin"), "OpaqueUnaryFn_cos": _real("Cos"), "OpaqueUnaryFn_tanh": _real("Tanh"),
    "Abs": lambda sizes, x: sizes.builder.op("Abs", sizes.piece(x), shape=[1]),
    "And": _folded("And"), "Or": _folded("Or"),
    "Not": lambda sizes, x: sizes.builder.op("Not", sizes.piece(x), shape=[1]),
    "Equality": _compare("Equal"), "Unequality": _differ, "StrictLessThan": _compare("Less"),
    "StrictGreaterThan": _compare("Greater"), "LessThan": _compare("LessOrEqual"),
    "GreaterThan": _compare("GreaterOrEqual"),
}  # fmt: skip
