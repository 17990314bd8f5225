"""Scalar expressions and indices as C.

Input: an `Expr` or `Ix` over loop variables, arrays and sizes. Output: C text, and the lines that it needs before it.
Invariant: both arms of a select are computed, as everywhere; an index that is read from data is checked.
"""

from __future__ import annotations

import math
from typing import Protocol

from smelt.base.dtype import BY_NAME
from smelt.ir.kernel import Buffer, Ix, Sym, Tensor, Unsupported, Val, Var, flat
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.expr import Expr
from smelt.ir.kernel.index import Atom, one_not_1

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "band": "&", "bor": "|", "bxor": "^", "and": "&&", "or": "||", "xor": "!=",
}  # fmt: skip
# Computed in double by the C library, or by plain.h over it, and rounded once.
DOUBLE = {
    "exp": "exp", "log": "log", "erf": "erf", "tanh": "tanh", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin",
    "acos": "acos", "atan": "atan", "sinh": "sinh", "cosh": "cosh", "asinh": "asinh", "acosh": "acosh",
    "atanh": "atanh", "log1p": "log1p", "expm1": "expm1", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil",
    "round": "rint", "trunc": "trunc", "gelu": "plain_gelu", "sigmoid": "plain_sigmoid", "softplus": "plain_softplus",
}  # fmt: skip
TESTS = {
    "isnan": "isnan({0})", "isinf": "isinf({0})", "isinf_pos": "({0} == INFINITY)", "isinf_neg": "({0} == -INFINITY)",
    "not": "!{0}", "bnot": "~{0}", "neg": "-{0}", "sel": "{0} ? {1} : {2}", "rounded": "{0}", "recip": "1 / {0}",
    "min": "PLAIN_MIN({0}, {1})", "max": "PLAIN_MAX({0}, {1})", "abs": "({0} < 0 ? -{0} : {0})",
    "sign": "PLAIN_SIGN({0})",
}  # fmt: skip


class Memory(Protocol):
    """What an element needs of the region that it is written in."""

    def array(self, tensor: Tensor) -> str:
        """The array of a computed tensor, which is made first where there is none yet."""
        ...

    def input(self, buffer: Buffer) -> str:
        """The data of one of the region's inputs."""
        ...

    def symbol(self, symbol: Sym) -> str:
        """The variable that holds a size."""
        ...


def c_type(dtype: str) -> str:
    return BY_NAME[dtype].c


class Elements:
    """The elements that one loop body computes, each once: `lines` declare them, in order."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.lines: list[str] = []
        self.names: dict[int, str] = {}
        self.indices: dict[str, str] = {}

    def text(self, root: Expr) -> str:
        for node in E.walk(root):
            if node.uid not in self.names:
                name = f"e{len(self.names)}"
                self.lines.append(f"const {c_type(node.dtype)} {name} = {self._value(node)};")
                self.names[node.uid] = name
        return self.names[root.uid]

    def _value(self, node: Expr) -> str:
        kind = node.kind
        if isinstance(kind, E.Const):
            return constant(kind.value, node.dtype)
        if isinstance(kind, E.Index):
            return self.ix(kind.ix)
        if isinstance(kind, E.Load):
            return f"{self.memory.input(kind.buffer)}[{self.ix(kind.offset)}]"
        if isinstance(kind, E.Ref):
            return f"{self.memory.array(kind.tensor)}[{self.ix(flat(kind.index, kind.tensor.shape))}]"
        return operation(kind.name, node.dtype, kind.args[0].dtype, [self.names[a.uid] for a in kind.args])

    def ix(self, value: Ix) -> str:
        terms = (" * ".join((str(scale), *map(self._atom, monomial))) for monomial, scale in value.terms)
        return " + ".join(terms) or "0"

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Var):
            return atom.name
        if isinstance(atom, Sym):
            return f"({self.ix(one_not_1(atom.members))})" if atom.members else self.memory.symbol(atom)
        if isinstance(atom, Val):
            return self._read_index(atom)
        return f"plain_{atom.op}({', '.join(self.ix(a) for a in atom.args)})"

    def _read_index(self, atom: Val) -> str:
        """A name for an index that is read from data."""
        if atom.key not in self.indices:
            found, extent = self.text(atom.expr), self.ix(atom.extent)
            name = self.indices[atom.key] = f"d{len(self.indices)}"
            self.lines.append(f"const int64_t {name} = plain_index({found}, {extent});")
            self.lines.append(f"if ({name} < 0) return smelt_fail(env, SMELT_E_INDEX, -1, {found}, {extent}, 0);")
        return self.indices[atom.key]


def operation(name: str, dtype: str, operand: str, args: list[str]) -> str:
    if name == "cvt":
        return conversion(args[0], operand, dtype)
    if name in INFIX:
        return f"{args[0]} {INFIX[name]} {args[1]}"
    if name in TESTS:
        return TESTS[name].format(*args)
    if name in DOUBLE and BY_NAME[dtype].kind == "float":
        return f"{DOUBLE[name]}({args[0]})"
    if name == "div" and BY_NAME[dtype].kind == "float":
        return f"{args[0]} / {args[1]}"
    if name in ("div", "mod", "fmod", "pow", "shl", "shr"):
        kind = BY_NAME[dtype].kind
        bits = f", {BY_NAME[dtype].bits}" if name in ("shl", "shr") else ""
        return f"plain_{name}_{kind}({args[0]}, {args[1]}{bits})"
    raise Unsupported(f"no scalar C for {name}")


def conversion(value: str, source: str, to: str) -> str:
    """Float to integer truncates; what does not fit is x86's answer."""
    if to == "b":
        return f"{value} != 0"
    if BY_NAME[to].is_narrow:
        return f"plain_to_{to}({value})"
    if BY_NAME[source].is_narrow:
        return f"plain_from_{source}({value})"
    if BY_NAME[source].kind != "float" or BY_NAME[to].kind == "float":
        return f"({c_type(to)}){value}"
    if to == "u64":
        return f"plain_to_u64({value})"
    return f"({c_type(to)})plain_to_{'i64' if to in ('i64', 'u32') else 'i32'}({value})"


def constant(value: float | int | bool, dtype: str) -> str:
    if BY_NAME[dtype].is_narrow:
        return conversion(constant(value, "f32"), "f32", dtype)
    if BY_NAME[dtype].kind != "float":
        return f"({c_type(dtype)})UINT64_C({int(value) % 2**64})"
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return f"({c_type(dtype)}){float(value).hex()}"
