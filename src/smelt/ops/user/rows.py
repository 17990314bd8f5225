"""A user's C function over a row -> tensors, where its loops are sums, products, extremes and maps of elements.

Input: `void f(const float *x, ..., float *y, int64_t n)`, whose body is statements and loops
`for (int64_t i = 0; i < n; i++)`. Output: the outputs as tensors, so that rows are fused as those of built-in ops are.
Invariant: a row that cannot be stated so (`NotARowError`) is never guessed: it stays a function in C. A loop may
accumulate into locals from outside of it, and store to outputs at `[i]`; maxima ignore NaN as C's comparisons do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from smelt.base.errors import KernelError
from smelt.ir.kernel import Ix, Tensor
from smelt.ir.kernel import expr as E

from .c_text import Functions
from .evaluate import Env, Evaluator, block_of
from .values import Arithmetic, Value

_STEPS: Final = ("p++", "++", "p--", "--")


class NotARowError(Exception):
    """The function cannot be stated by reductions and maps of its row; the text says why."""


@dataclass
class _Loop:
    """A loop under way: its index, arrays that it writes, and how it accumulates into locals from outside of it."""

    index: str
    written: frozenset[str]
    kinds: dict[str, str] = field(default_factory=dict[str, str])


class RowEvaluator(Evaluator):
    """Arrays are tensors whose last axis is the row; other values have size 1 there, or no axes."""

    def __init__(self, functions: Functions, arithmetic: Arithmetic, length: Ix, arrays: Mapping[str, Tensor]) -> None:
        super().__init__(functions, arithmetic)
        self.length, self.arrays = length, dict(arrays)
        self.inside: _Loop | None = None

    def unknown(self, node: Any, what: str) -> Exception:
        return NotARowError(f"{what}, in line {node.coord.line if node.coord else 0}")

    def _local(self, node: Any, env: Env) -> Value:
        """A name without a value may be one that a loop changes."""
        try:
            return super()._local(node, env)
        except KernelError as error:
            raise NotARowError(str(error)) from error

    def function(self, name: str, given: Sequence[Value]) -> Value:
        """Functions that a row calls are those of elements."""
        return Evaluator(self.functions, self.a, self.depth + 1).function(name, given)

    def loop(self, node: Any, env: Env) -> None:
        if self.inside is not None:
            raise self.unknown(node, "a loop within a loop")
        index = self._index_of(node)
        if index is None:
            super().loop(node, env)
            return
        assigned, written = _assigned(node.stmt)
        self.inside = _Loop(index, frozenset(written))
        # What the loop changes from turn to turn has no one value inside of it.
        inner = {name: value for name, value in env.items() if name not in assigned}
        inner[index] = self._places()
        self._body_statement(node.stmt, env, inner, True)
        self.inside = None

    def _body_statement(self, node: Any, env: Env, inner: Env, condition: Value) -> None:
        """One statement of a loop's body, for all elements at once."""
        kind = type(node).__name__
        if kind == "Compound":
            for one in block_of(node):
                self._body_statement(one, env, inner, condition)
        elif kind == "If":
            self._if_of_body(node, env, inner, condition)
        elif kind == "Assignment" and type(node.lvalue).__name__ == "ArrayRef":
            self._store(node, inner, condition)
        elif kind == "Assignment" and node.lvalue.name in env:
            self._accumulate(node, env, inner, condition)
        elif condition is True:
            self.statement(node, inner)
        else:
            raise self.unknown(node, "a statement under a condition that is no store and no sum")

    def _if_of_body(self, node: Any, env: Env, inner: Env, condition: Value) -> None:
        extreme = _larger(node)
        if condition is True and extreme is not None and extreme[0] in env:
            name, kind, element = extreme
            self._combine(node, env, name, kind, self.value(element, inner))
            return
        holds = self.value(node.cond, inner)
        both = self.a.binary("&&", condition, holds) if condition is not True else holds
        self._body_statement(node.iftrue, env, inner, both)
        if node.iffalse is not None:
            other = self.a.unary("!", holds)
            self._body_statement(
                node.iffalse, env, inner, self.a.binary("&&", condition, other) if condition is not True else other
            )

    def _store(self, node: Any, inner: Env, condition: Value) -> None:
        name = node.lvalue.name.name
        if not self._is_index(node.lvalue.subscript) or node.op != "=":
            raise self.unknown(node, "a store at another place than [i]")
        value = self.value(node.rvalue, inner)
        if condition is not True:
            if name not in self.arrays:
                raise self.unknown(node, f"a store to {name} under a condition")
            value = self.a.select(condition, value, self.arrays[name])
        self.arrays[name] = self.spread(value)

    def _accumulate(self, node: Any, env: Env, inner: Env, condition: Value) -> None:
        name = node.lvalue.name
        found = _accumulated(node, name)
        if found is None:
            raise self.unknown(node, f"{name} is no sum, product or extreme")
        kind, element, negative = found
        value = self.value(element, inner)
        value = self.a.unary("-", value) if negative else value
        neutral = {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}[kind]
        if condition is not True:
            value = self.a.select(condition, value, neutral)
        self._combine(node, env, name, kind, value)

    def _combine(self, node: Any, env: Env, name: str, kind: str, value: Value) -> None:
        assert self.inside is not None
        if self.inside.kinds.setdefault(name, kind) != kind:
            raise self.unknown(node, f"{name} is accumulated in two ways")
        dtype = self.a.dtype_of(env[name])
        if dtype not in E.FLOATS and kind in ("max", "min"):
            raise self.unknown(node, "an extreme of integers")
        elements = self.spread(self.a.cast(value, dtype))
        if kind in ("max", "min"):
            worst = -math.inf if kind == "max" else math.inf
            elements = self._no_nan(elements, worst)
        total = self.a.k.reduce(kind, elements, [elements.rank - 1])
        joined = {"sum": "+", "prod": "*"}.get(kind)
        if joined is not None:
            neutral = {"sum": 0, "prod": 1}[kind]
            before = env[name]
            plain = not isinstance(before, Tensor) and before == neutral
            env[name] = total if plain else self.operate(node, joined, before, total)
        else:
            made = self.a.call("fmax" if kind == "max" else "fmin", [env[name], total])
            assert made is not None
            env[name] = made

    def _no_nan(self, x: Tensor, worst: float) -> Tensor:
        return self.a.k.map(lambda e: E.select(E.op("isnan", e), E.const(worst, e.dtype), e), x)

    def assign(self, node: Any, env: Env) -> None:
        """Outside of loops the first element of an output may be stored: it is one element for each row then."""
        if type(node.lvalue).__name__ != "ArrayRef":
            super().assign(node, env)
            return
        if node.op != "=" or getattr(node.lvalue.subscript, "value", "") != "0":
            raise self.unknown(node, "a store outside of a loop at another place than [0]")
        value = self.value(node.rvalue, env)
        tensor = value if isinstance(value, Tensor) else self.a.typed(value, self.a.dtype_of(value))
        self.arrays[node.lvalue.name.name] = tensor if tensor.rank else self.a.k.expand(tensor, (1,))

    def value(self, node: Any, env: Env) -> Value:
        if type(node).__name__ != "ArrayRef":
            return super().value(node, env)
        name = getattr(node.name, "name", "")
        if name not in self.arrays:
            raise self.unknown(node, f"{name or 'an expression'}[...] is read before it is written")
        if self._is_index(node.subscript):
            return self.arrays[name]
        return self._element(node, name, env)

    def _element(self, node: Any, name: str, env: Env) -> Value:
        """One element of the row, at a place that the text tells."""
        place = super().value(node.subscript, env) if type(node.subscript).__name__ == "Constant" else None
        if not isinstance(place, int) or (self.inside is not None and name in self.inside.written):
            raise self.unknown(node, "an element at another place than [i], or a number")
        x = self.arrays[name]
        sizes = [*x.shape[:-1], 1]
        return self.a.k.slice(x, [0] * (x.rank - 1) + [place], [1] * x.rank, sizes)

    def spread(self, value: Value) -> Tensor:
        """A value for each element of the row."""
        tensor = value if isinstance(value, Tensor) else self.a.typed(value, self.a.dtype_of(value))
        if tensor.rank and tensor.shape[-1] == self.length:
            return tensor
        return self.a.k.expand(tensor, (*tensor.shape[:-1], self.length))

    def _places(self) -> Value:
        return self.a.k.iota((self.length,), 0)

    def _is_index(self, node: Any) -> bool:
        return self.inside is not None and type(node).__name__ == "ID" and node.name == self.inside.index

    def _index_of(self, node: Any) -> str | None:
        """The variable of `for (int64_t i = 0; i < n; i++)`; None for another loop."""
        declared = node.init.decls[0] if type(node.init).__name__ == "DeclList" else None
        condition, step = node.cond, node.next
        if declared is None or type(condition).__name__ != "BinaryOp" or type(condition.right).__name__ != "ID":
            return None
        starts_at_0 = getattr(declared.init, "value", "") == "0"
        goes_to_n = condition.op == "<" and condition.left.name == declared.name and condition.right.name == "n"
        by_one = type(step).__name__ == "UnaryOp" and step.op in ("p++", "++") and step.expr.name == declared.name
        return declared.name if starts_at_0 and goes_to_n and by_one else None


def _assigned(node: Any) -> tuple[set[str], set[str]]:
    """Names of locals and of arrays that are assigned to somewhere below."""
    names, arrays = set[str](), set[str]()
    stack: list[Any] = [node]
    while stack:
        one = stack.pop()
        kind = type(one).__name__
        is_step = kind == "UnaryOp" and one.op in _STEPS
        target: Any = one.lvalue if kind == "Assignment" else one.expr if is_step else None
        if type(target).__name__ == "ID":
            names.add(target.name)
        elif type(target).__name__ == "ArrayRef":
            arrays.add(getattr(target.name, "name", ""))
        stack += [below for _, below in one.children()]
    return names, arrays


def _accumulated(node: Any, name: str) -> tuple[str, Any, bool] | None:
    """Kind of reduction, its element, and whether that is subtracted."""
    if node.op in ("+=", "-=", "*="):
        return ("prod" if node.op == "*=" else "sum"), node.rvalue, node.op == "-="
    value, kind = node.rvalue, type(node.rvalue).__name__
    if kind == "BinaryOp" and value.op in ("+", "*") and _is(value.left, name):
        return ("sum" if value.op == "+" else "prod"), value.right, False
    if kind == "FuncCall" and value.name.name in ("fmax", "fmaxf", "fmin", "fminf") and _is(value.args.exprs[0], name):
        return value.name.name[1:4], value.args.exprs[1], False
    if kind == "TernaryOp" and type(value.cond).__name__ == "BinaryOp":
        return _chosen(value, name)
    return None


def _chosen(value: Any, name: str) -> tuple[str, Any, bool] | None:
    """`acc > e ? acc : e` and its kin: the element is what is compared with the local."""
    left, right = value.cond.left, value.cond.right
    if value.cond.op not in (">", ">=", "<", "<="):
        return None
    larger = value.cond.op[0] == ">"
    if _is(left, name) and _is(value.iftrue, name) and _same(right, value.iffalse):
        return ("max" if larger else "min"), right, False
    if _is(right, name) and _is(value.iffalse, name) and _same(left, value.iftrue):
        return ("max" if larger else "min"), left, False
    return None


def _larger(node: Any) -> tuple[str, str, Any] | None:
    """`if (e > acc) acc = e;`: local, kind, element."""
    body = node.iftrue
    if type(body).__name__ == "Compound" and len(body.block_items or []) == 1:
        body = body.block_items[0]
    condition = node.cond
    if node.iffalse is not None or type(body).__name__ != "Assignment" or type(condition).__name__ != "BinaryOp":
        return None
    if body.op != "=" or condition.op not in (">", ">=", "<", "<=") or type(body.lvalue).__name__ != "ID":
        return None
    name, up = body.lvalue.name, condition.op[0] == ">"
    if _is(condition.right, name) and _same(condition.left, body.rvalue):
        return name, "max" if up else "min", condition.left
    if _is(condition.left, name) and _same(condition.right, body.rvalue):
        return name, "min" if up else "max", condition.right
    return None


def _is(node: Any, name: str) -> bool:
    return type(node).__name__ == "ID" and node.name == name


def _same(a: Any, b: Any) -> bool:
    """Whether two trees are the same text."""
    if type(a) is not type(b):
        return False
    plain = [(getattr(a, name), getattr(b, name)) for name in a.attr_names]
    below = list(zip(a.children(), b.children(), strict=False))
    return (
        all(x == y for x, y in plain)
        and len(a.children()) == len(b.children())
        and all(_same(x[1], y[1]) for x, y in below)
    )
