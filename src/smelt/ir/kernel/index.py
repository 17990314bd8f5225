"""Integer expressions for sizes and indices, in a normal form that makes equality a comparison.

Input: Python ints, `Sym` (a size known at run time) and `Var` (a loop variable). Output: `Ix`, a polynomial with
integer coefficients over atoms. Invariant: two `Ix` built from equal polynomials compare equal and hash equal;
division and remainder are simplified only when that is provably exact for non-negative loop variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Union

from .computed import computed

if TYPE_CHECKING:
    from .expr import Expr


TERM_LIMIT = 1024
TEXT_LIMIT = 16384


class Unsupported(Exception):  # noqa: N818
    """A lowering that cannot be stated for this node; the text is what `explain` prints."""


@dataclass(frozen=True, eq=True)
class Sym:
    """A size or small integer that a region learns from its inputs. `nonneg` is true for dimensions.

    One with `members` is what these sizes broadcast to: the one that is not 1. It is a symbol of its own, so that all
    that follows a broadcast is as simple as if its size had come with an input."""

    name: str
    nonneg: bool = True
    members: tuple[Ix, ...] = ()

    @computed
    def key(self) -> str:
        return f"s:{self.name}"


@dataclass(frozen=True, eq=True)
class Var:
    """A loop variable in [0, extent)."""

    name: str
    extent: Ix

    @computed
    def key(self) -> str:
        # With the extent: regions name their variables alike, and expressions are shared by key.
        return f"v:{self.name}<{self.extent.key}>"


@dataclass(frozen=True, eq=True)
class Fn:
    """An opaque integer function: floordiv, mod, min, max, ne1 (a size other than 1), eq, sel."""

    op: str
    args: tuple[Ix, ...]

    @computed
    def key(self) -> str:
        return f"f:{self.op}({','.join(a.key for a in self.args)})"

    @computed
    def _hash(self) -> int:
        return hash((self.op, self.args))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, eq=True)
class Val:
    """An index read from data: `expr` wrapped into [0, extent) when negative, and checked at run time.

    One that is not `checked` lies in that range by the way it is computed."""

    expr: Expr
    extent: Ix
    checked: bool = True

    @computed
    def key(self) -> str:
        return f"{'d' if self.checked else 'c'}:{self.expr.uid}<{self.extent.key}"


Atom = Sym | Var | Fn | Val
Monomial = tuple[Atom, ...]
IxLike = Union["Ix", int]


def _term_key(term: tuple[Monomial, int]) -> tuple[int, list[str]]:
    return len(term[0]), [a.key for a in term[0]]


def _atom_key(atom: Atom) -> str:
    return atom.key


class Ix:
    """A polynomial: sorted (monomial, coefficient) pairs; the empty monomial is the constant."""

    __slots__ = ("__dict__", "terms")
    terms: tuple[tuple[Monomial, int], ...]

    def __init__(self, terms: Iterable[tuple[Monomial, int]]) -> None:
        kept = [(m, c) for m, c in terms if c]
        if len(kept) > 1:
            kept.sort(key=_term_key)
        self.terms = tuple(kept)

    @computed
    def key(self) -> str:
        return "+".join(f"{c}*{'*'.join(a.key for a in m)}" for m, c in self.terms) or "0"

    @computed
    def _hash(self) -> int:
        return hash(self.key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.const == other
        return isinstance(other, Ix) and (self is other or self.key == other.key)

    def __repr__(self) -> str:
        return show(self)

    @computed
    def const(self) -> int | None:
        """The value when this is a plain number, else None."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    @computed
    def atoms(self) -> frozenset[Atom]:
        """Every atom, those inside functions included (data reads keep their own)."""
        found: set[Atom] = set()
        stack = [a for m, _ in self.terms for a in m]
        while stack:
            atom = stack.pop()
            if atom in found:
                continue
            found.add(atom)
            if isinstance(atom, Fn):
                stack.extend(a for arg in atom.args for m, _ in arg.terms for a in m)
        return frozenset(found)

    @computed
    def data(self) -> tuple[Val, ...]:
        """Atoms that are read from data, in a fixed order."""
        return tuple(sorted((a for a in self.atoms if isinstance(a, Val)), key=lambda a: a.key))

    @computed
    def vars(self) -> frozenset[Var]:
        return frozenset(a for a in self.atoms if isinstance(a, Var))

    @computed
    def syms(self) -> frozenset[Sym]:
        return frozenset(a for a in self.atoms if isinstance(a, Sym))

    def __add__(self, other: IxLike) -> Ix:
        right = ix(other)
        if not right.terms:
            return self
        if not self.terms:
            return right
        total = dict(self.terms)
        for m, c in right.terms:
            total[m] = total.get(m, 0) + c
        return _rejoin(Ix(total.items()))

    def __mul__(self, other: IxLike) -> Ix:
        right = ix(other)
        if right.const == 1:
            return self
        if self.const == 1:
            return right
        if not self.terms or not right.terms:
            return _number(0)
        if len(self.terms) * len(right.terms) > TERM_LIMIT:
            raise Unsupported("the sizes are too complex")
        total: dict[Monomial, int] = {}
        for m1, c1 in self.terms:
            for m2, c2 in right.terms:
                m = tuple(sorted(m1 + m2, key=_atom_key)) if m1 and m2 else m1 or m2
                total[m] = total.get(m, 0) + c1 * c2
        return Ix(total.items())

    def __neg__(self) -> Ix:
        return self * -1

    def __sub__(self, other: IxLike) -> Ix:
        return self + ix(other) * -1

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: IxLike) -> Ix:
        return ix(other) - self

    def __floordiv__(self, other: IxLike) -> Ix:
        return _divmod(self, ix(other))[0]

    def __mod__(self, other: IxLike) -> Ix:
        return _divmod(self, ix(other))[1]


def ix(value: IxLike) -> Ix:
    return value if isinstance(value, Ix) else _number(int(value))


@lru_cache(maxsize=4096)
def _number(value: int) -> Ix:
    return Ix([((), value)])


def of(atom: Atom) -> Ix:
    return Ix([((atom,), 1)])


def sym(name: str, *, nonneg: bool = True) -> Ix:
    return of(Sym(name, nonneg))


def members_of(size: Ix) -> tuple[Ix, ...]:
    if len(size.terms) != 1 or size.terms[0][1] != 1 or len(size.terms[0][0]) != 1:
        return ()
    atom = size.terms[0][0][0]
    return atom.members if isinstance(atom, Sym) else ()


def one_not_1(members: Sequence[Ix]) -> Ix:
    """The first size that is not 1; 1 when all are."""
    found = ix(1)
    for size in reversed(members):
        found = fn("sel", fn("ne1", size), size, found)
    return found


def fn(op: str, *args: IxLike) -> Ix:
    """A function of integers, folded when its arguments are numbers."""
    operands = tuple(ix(a) for a in args)
    values = [a.const for a in operands]
    if all(v is not None for v in values):
        return ix(_FOLD[op](*values))
    if op == "sel" and values[0] is not None:
        return operands[1] if values[0] else operands[2]
    if op in ("min", "max", "sel") and operands[-1] == operands[-2]:
        return operands[-1]
    simpler = _ordered(op, operands) if op in ("min", "max", "eq", "lt") else None
    if simpler is not None:
        return simpler
    if sum(len(a.key) for a in operands) > TEXT_LIMIT:
        raise Unsupported("the sizes are too complex")
    return of(Fn(op, operands))


def _ordered(op: str, operands: tuple[Ix, ...]) -> Ix | None:
    """min, max, eq and lt of two values whose order is provable."""
    a, b = operands
    gap = a - b
    if op in ("min", "max"):
        if _nonneg(gap):
            return a if op == "max" else b
        return (b if op == "max" else a) if _nonneg(-gap) else None
    if op == "eq":
        if not gap.terms:
            return ix(1)
        return ix(0) if _nonneg(gap - 1) or _nonneg(-gap - 1) else None
    return ix(0) if _nonneg(gap) else ix(1) if _nonneg(-gap - 1) else None


def _floordiv(a: int, b: int) -> int:
    return a // b if b else 0


def _truncdiv(a: int, b: int) -> int:
    return (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1) if b else 0


def _mod(a: int, b: int) -> int:
    return a % b if b else 0


def _not_one(a: int) -> int:
    return int(a != 1)


def _equal(a: int, b: int) -> int:
    return int(a == b)


def _less(a: int, b: int) -> int:
    return int(a < b)


def _choose(condition: int, yes: int, no: int) -> int:
    return yes if condition else no


_FOLD: dict[str, Callable[..., int]] = {
    "floordiv": _floordiv,
    "truncdiv": _truncdiv,
    "mod": _mod,
    "min": min,
    "max": max,
    "ne1": _not_one,
    "eq": _equal,
    "lt": _less,
    "sel": _choose,
}


def _nonneg(value: Ix) -> bool:
    return all(c >= 0 and all(_atom_nonneg(a) for a in m) for m, c in value.terms)


def _atom_nonneg(atom: Atom) -> bool:
    if isinstance(atom, Sym):
        return atom.nonneg
    if isinstance(atom, Fn):
        if atom.op in ("ne1", "eq", "lt"):
            return True
        if atom.op == "max":
            return any(_nonneg(a) for a in atom.args)
        rest = atom.args[1:] if atom.op == "sel" else atom.args
        return all(_nonneg(a) for a in rest)
    return True


def nonneg(value: IxLike) -> bool:
    """True when the value is provably >= 0."""
    return _nonneg(ix(value))


def at_least(value: Ix, other: IxLike) -> bool:
    """True when value >= other is provable with every loop variable in range and every dimension at least 1.

    A loop body runs only when all extents are positive, so `s >= 1` is sound there."""
    gap = value - ix(other)
    gap = _maximize_negative(gap)
    shifted: dict[Monomial, int] = {}
    for m, c in gap.terms:
        if any((isinstance(a, Sym) and not a.nonneg) or isinstance(a, Fn) for a in m):
            if c < 0 or not all(_atom_nonneg(a) for a in m):
                return False
            continue
        for sub, sub_c in _shift(m):
            shifted[sub] = shifted.get(sub, 0) + c * sub_c
    return all(c >= 0 for c in shifted.values())


def _shift(monomial: Monomial) -> list[tuple[Monomial, int]]:
    """Each dimension s as 1 + s', so that positive coefficients mean a positive value."""
    out: list[tuple[Monomial, int]] = [((), 1)]
    for atom in monomial:
        plain = [((*m, atom), c) for m, c in out]
        out = plain + out if isinstance(atom, Sym) else plain
    merged: dict[Monomial, int] = {}
    for m, c in out:
        merged[m] = merged.get(m, 0) + c
    return list(merged.items())


def _maximize_negative(gap: Ix) -> Ix:
    """A lower bound without loop variables: negative terms take v = extent - 1, positive ones v = 0."""
    for _ in range(8):
        loops = [a for m, _ in gap.terms for a in m if isinstance(a, (Var, Val))]
        if not loops:
            return gap
        var = loops[0]
        bound = var.extent - 1
        total = ix(0)
        for m, c in gap.terms:
            if var not in m:
                total = total + Ix([(m, c)])
            elif c < 0:
                rest = list(m)
                rest.remove(var)
                total = total + Ix([(tuple(rest), c)]) * bound
        gap = total
    return gap


def _rejoin(value: Ix) -> Ix:
    """(x floordiv c) * c + (x mod c) is x."""
    mods = [(m, c) for m, c in value.terms if any(isinstance(a, Fn) and a.op == "mod" for a in m)]
    for m, c in mods:
        atom = next(a for a in m if isinstance(a, Fn) and a.op == "mod")
        rest = list(m)
        rest.remove(atom)
        x, size = atom.args
        scale = Ix([(tuple(rest), c)])
        quotient = of(Fn("floordiv", (x, size))) * size * scale
        table = dict(value.terms)
        if all(table.get(qm) == qc for qm, qc in quotient.terms):
            plain = Ix((k, v) for k, v in value.terms if k != m and k not in dict(quotient.terms))
            return plain + x * scale
    return value


def _divmod(value: Ix, by: Ix) -> tuple[Ix, Ix]:
    if by.const == 1:
        return value, ix(0)
    if value.const is not None and by.const is not None:
        return (ix(value.const // by.const), ix(value.const % by.const)) if by.const else (ix(0), ix(0))
    if len(by.terms) != 1 or by.const == 0:
        if value == by:
            return ix(1), ix(0)
        return fn("floordiv", value, by), fn("mod", value, by)
    whole: list[tuple[Monomial, int]] = []
    rest: list[tuple[Monomial, int]] = []
    for m, c in value.terms:
        quotient = _term_div(m, c, by.terms[0])
        (rest.append((m, c)) if quotient is None else whole.append(quotient))
    quotient, remainder = Ix(whole), Ix(rest)
    if not remainder.terms:
        return quotient, ix(0)
    if _in_range(remainder, by):
        return quotient, remainder
    if not quotient.terms and remainder.const is None:
        nested = _nested(remainder, by)
        if nested is not None:
            return nested
    return quotient + fn("floordiv", remainder, by), fn("mod", remainder, by)


def _in_range(value: Ix, by: Ix) -> bool:
    return _nonneg(value) and at_least(by - 1 - value, 0)


def _nested(value: Ix, by: Ix) -> tuple[Ix, Ix] | None:
    """(x floordiv a + k) floordiv b = (x + k*a) floordiv (a*b)."""
    if len(value.terms) == 2 and not value.terms[0][0]:
        return _nested_plus(value, by)
    if len(value.terms) != 1 or value.terms[0][1] != 1 or len(value.terms[0][0]) != 1:
        return None
    atom = value.terms[0][0][0]
    if isinstance(atom, Fn) and atom.op == "floordiv" and _nonneg(atom.args[0]):
        x, size = atom.args
        return fn("floordiv", x, size * by), fn("mod", value, by)
    return None


def _nested_plus(value: Ix, by: Ix) -> tuple[Ix, Ix] | None:
    """With a constant k, and constant divisors, for which it holds whatever the sign of x."""
    (_, k), (monomial, scale) = value.terms
    if scale != 1 or len(monomial) != 1 or by.const is None or by.const < 1:
        return None
    atom = monomial[0]
    if not isinstance(atom, Fn) or atom.op != "floordiv" or (atom.args[1].const or 0) < 1:
        return None
    x, size = atom.args
    return (x + size * k) // (size * by), fn("mod", value, by)


def _term_div(m: Monomial, c: int, by: tuple[Monomial, int]) -> tuple[Monomial, int] | None:
    factors, scale = by
    if c % scale:
        return None
    rest = list(m)
    for atom in factors:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest), c // scale


def exact_div(value: Ix, by: Ix) -> Ix | None:
    """value / by when it divides without remainder for every value of the symbols, else None."""
    if by.const == 0:
        return None
    if value == by:
        return ix(1)
    if len(by.terms) == 1:
        terms = [_term_div(m, c, by.terms[0]) for m, c in value.terms]
        return Ix(t for t in terms if t) if all(t is not None for t in terms) else None
    return _poly_div(value, by)


def _poly_div(value: Ix, by: Ix) -> Ix | None:
    """Long division by the leading term; gives up after as many steps as there are terms."""
    quotient, rest = ix(0), value
    for _ in range(len(value.terms) + 2):
        if not rest.terms:
            return quotient
        step = _term_div(rest.terms[-1][0], rest.terms[-1][1], by.terms[-1])
        if step is None:
            return None
        quotient, rest = quotient + Ix([step]), rest - Ix([step]) * by
    return None


def product(values: Iterable[IxLike]) -> Ix:
    total = _number(1)
    for value in values:
        total = total * value
    return total


def substitute(value: Ix, table: Mapping[Atom, Ix]) -> Ix:
    """Replace atoms, inside functions too. Data reads are replaced as a whole only."""
    if not table or not (value.atoms & table.keys()):
        return value
    total = ix(0)
    for m, c in value.terms:
        part = ix(c)
        for atom in m:
            part = part * _substitute_atom(atom, table)
        total = total + part
    return total


def _substitute_atom(atom: Atom, table: Mapping[Atom, Ix]) -> Ix:
    if atom in table:
        return table[atom]
    if not isinstance(atom, Fn):
        return of(atom)
    args = [substitute(a, table) for a in atom.args]
    if atom.op == "floordiv":
        return args[0] // args[1]
    if atom.op == "mod":
        return args[0] % args[1]
    return fn(atom.op, *args)


def coefficient(value: Ix, var: Var | Sym) -> tuple[Ix, Ix] | None:
    """(a, b) with value = a * var + b and var in neither, or None when it is not affine in var."""
    slope: list[tuple[Monomial, int]] = []
    rest: list[tuple[Monomial, int]] = []
    for m, c in value.terms:
        if var in m:
            left = list(m)
            left.remove(var)
            slope.append((tuple(left), c))
        else:
            rest.append((m, c))
    a, b = Ix(slope), Ix(rest)
    return None if var in a.atoms or var in b.atoms else (a, b)


def evaluate(value: Ix, env: Mapping[str, int]) -> int:
    """The number that this is when symbols and variables have the given values."""
    total = 0
    for m, c in value.terms:
        part = c
        for atom in m:
            part *= _evaluate_atom(atom, env)
        total += part
    return total


def _evaluate_atom(atom: Atom, env: Mapping[str, int]) -> int:
    if isinstance(atom, Fn):
        return _FOLD[atom.op](*(evaluate(a, env) for a in atom.args))
    if isinstance(atom, Val):
        raise KeyError("an index read from data has no value here")
    if isinstance(atom, Sym) and atom.members and atom.name not in env:
        return evaluate(one_not_1(atom.members), env)
    return env[atom.name]


def show(value: Ix) -> str:
    """Readable text, for reports."""
    if not value.terms:
        return "0"
    parts: list[str] = []
    for m, c in reversed(value.terms):
        factors = [_show_atom(a) for a in m]
        if c != 1 or not factors:
            factors.insert(0, str(c))
        parts.append("*".join(factors))
    return " + ".join(parts)


def _show_atom(atom: Any) -> str:
    if isinstance(atom, Fn):
        return f"{atom.op}({', '.join(show(a) for a in atom.args)})"
    return "data" if isinstance(atom, Val) else atom.name
