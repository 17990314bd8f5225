"""Loop variables of a reader from the place where its operand is computed.

Input: the index at which a tensor is read, in the reader's variables, and the index at which it is computed. Output:
the reader's variables in terms of the computing ones. Invariant: a candidate only; the caller substitutes it back and
compares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from smelt.ir.kernel import Ix, Reduce, Var, flat, ix, of, product
from smelt.ir.kernel.index import Fn

from .cluster import Cluster


def solve(index: Sequence[Ix], place: Sequence[Ix]) -> dict[Var, Ix]:
    """Variables such that index = place, as far as single components or pairs of digits tell."""
    solved: dict[Var, Ix] = {}
    for component, value in zip(index, place, strict=True):
        for var, found in _solve_one(component, value).items():
            solved.setdefault(var, found)
    for var, found in _from_digits(index, place).items():
        solved.setdefault(var, found)
    return solved


def bare(value: Ix) -> Var | None:
    """The variable that an index expression is."""
    if len(value.terms) == 1 and value.terms[0][1] == 1 and len(value.terms[0][0]) == 1:
        atom = value.terms[0][0][0]
        return atom if isinstance(atom, Var) else None
    return None


def _from_digits(index: Sequence[Ix], place: Sequence[Ix]) -> dict[Var, Ix]:
    """v where v // c and v % c are components: merged axes, read from where they are still apart."""
    high: dict[tuple[Var, Ix], Ix] = {}
    low: dict[tuple[Var, Ix], Ix] = {}
    for component, value in zip(index, place, strict=True):
        digit = _digit(component)
        if digit is not None:
            op, var, by = digit
            (high if op == "floordiv" else low)[var, by] = value
    return {var: value * by + low[var, by] for (var, by), value in high.items() if (var, by) in low}


def _digit(value: Ix) -> tuple[str, Var, Ix] | None:
    """(floordiv or mod, v, c) for v // c and v % c."""
    if len(value.terms) != 1 or value.terms[0][1] != 1 or len(value.terms[0][0]) != 1:
        return None
    atom = value.terms[0][0][0]
    if not isinstance(atom, Fn) or atom.op not in ("floordiv", "mod"):
        return None
    var = bare(atom.args[0])
    return None if var is None else (atom.op, var, atom.args[1])


def _solve_one(component: Ix, place: Ix) -> dict[Var, Ix]:
    """Variables such that component = place: a lone variable, or digits of a mixed-radix number."""
    lone = bare(component)
    if lone is not None:
        return {lone: place}
    digits: list[tuple[Var, int | None, Ix]] = []
    for monomial, scale in component.terms:
        loops = [a for a in monomial if isinstance(a, Var)]
        if len(loops) != 1:
            return {}
        rest = list(monomial)
        rest.remove(loops[0])
        digits.append((loops[0], len(rest), Ix([(tuple(rest), scale)])))
    solved: dict[Var, Ix] = {}
    step = ix(1)
    for _ in range(len(digits)):
        found = next((d for d in digits if d[2] == step), None)
        if found is None:
            return {}
        digits.remove(found)
        if not digits:
            solved[found[0]] = place
            break
        solved[found[0]] = place % found[0].extent
        place, step = place // found[0].extent, step * found[0].extent
    return solved


def relinearized(loops: Sequence[Var], cluster: Cluster) -> dict[Var, Ix] | None:
    """The same elements in the same order under another shape."""
    if product(v.extent for v in loops) != cluster.space:
        return None
    place = flat([of(v) for v in cluster.vars], [v.extent for v in cluster.vars])
    bound: dict[Var, Ix] = {}
    for var in reversed(loops):
        bound[var] = place % var.extent
        place = place // var.extent
    return bound


def keeps_order(cluster: Cluster, loops: Sequence[Var], bound: Mapping[Var, Ix], spare: Sequence[Var]) -> bool:
    """A permuted tensor may join only when its fastest axis stays the fastest loop: stores stay contiguous."""
    if spare or not cluster.vars:
        return True
    last = next((v for v in reversed(loops) if v.extent.const != 1), None)
    return last is None or cluster.vars[-1] in bound[last].vars


def reduction_fits(reduce: Reduce, cluster: Cluster, where: Sequence[Ix]) -> bool:
    """Whether a reduction runs over the cluster's own inner loops."""
    inner = [where[a] for a in reduce.axes if where[a].const is None]
    if any(bare(i) is None for i in inner):
        return False
    over = {bare(i) for i in inner}
    outer_vars = {v for a, w in enumerate(where) if a not in reduce.axes for v in w.vars}
    if over & outer_vars:
        return False
    if cluster.products and over != {cluster.vars[-1]}:
        return False  # a block holds some rows only
    return over == set(cluster.reduced) if cluster.reduced else True
