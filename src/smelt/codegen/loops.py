"""Loop nests in their final form: few loops, affine accesses where possible, one vectorized variable.

Input: a cluster of the schedule. Output: a `Nest`. Invariant: splitting and merging loops never changes which
elements are visited; every division or remainder of a loop variable by a divisor of its extent is gone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from smelt.ir.kernel import Expr, Ix, Scan, Tensor, Var, ix, of, product
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.index import Atom, Fn, coefficient, exact_div, substitute

from .cluster import BatchedGemm, Cluster, Loops, Operand, Reduction, RunningTotal, Store, WindowGemm, Work, products_of
from .matching import bare
from .resolve import replace_index


@dataclass
class Nest:
    """`outer` loops are parallel, `inner` ones sequential. The vectorized variable is the last of one of them."""

    outer: list[Var]
    inner: list[Var]
    vector: Var | None
    stores: list[Store]
    reductions: list[Reduction]
    work: Work = field(default_factory=Loops)
    sources: list[str] = field(default_factory=list[str])

    @property
    def products(self) -> tuple[Tensor, ...]:
        """What a task computes before its epilogue."""
        return products_of(self.work)

    @property
    def scan(self) -> Scan | None:
        """The running total that the nest is, if it is one."""
        definition = self.work.made.definition if isinstance(self.work, RunningTotal) else None
        return definition if isinstance(definition, Scan) else None

    @property
    def columns(self) -> bool:
        """The vectorized variable is one of the parallel loops."""
        return self.vector is not None and self.vector in self.outer


def build(cluster: Cluster) -> Nest:
    """Split, drop, merge, then choose the variable to vectorize."""
    work = _Work(cluster)
    if not cluster.products:
        work.drop_units()
    work.split()
    if not cluster.products:
        work.merge(len(work.vars))
    elif isinstance(cluster.work, WindowGemm):
        work.merge(len(work.vars) - 1)  # the last one is the product's columns
    return work.nest()


class _Work:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.vars = list(cluster.vars)
        self.reduced = list(cluster.reduced)
        self.stores = [Store(s.buffer, s.offset, s.value) for s in cluster.stores]
        self.reductions = list(cluster.reductions.values())
        self.work = cluster.work
        self.made = itertools.count()

    def fresh(self, extent: Ix) -> Var:
        """Numbered per nest: equal nests give equal text, whatever was compiled before."""
        return Var(f"j{next(self.made)}", extent)

    def indices(self) -> list[Ix]:
        """Every index expression of the nest."""
        out = [s.offset for s in self.stores]
        for node in E.walk(*self.roots()):
            kind = node.kind
            if isinstance(kind, E.Load):
                out.append(kind.offset)
            elif isinstance(kind, E.Index):
                out.append(kind.ix)
        return list(dict.fromkeys(out))

    def roots(self) -> Iterable[Expr]:
        for store in self.stores:
            yield store.value
        for reduction in self.reductions:
            yield reduction.value
            if reduction.position is not None and (
                reduction.kind.startswith("arg") or isinstance(self.work, RunningTotal)
            ):
                yield reduction.position

    def replace(self, table: dict[Atom, Ix]) -> None:
        move: Callable[[Expr], Expr] = lambda e: replace_index(e, table)  # noqa: E731
        self.stores = [Store(s.buffer, substitute(s.offset, table), move(s.value)) for s in self.stores]
        self.work = _moved(self.work, table)
        self.reductions = [
            Reduction(r.tensor, r.kind, move(r.value), None if r.position is None else move(r.position))
            for r in self.reductions
        ]

    def drop_units(self) -> None:
        gone: dict[Atom, Ix] = {v: ix(0) for v in self.vars if v.extent.const == 1}
        if gone:
            self.vars = [v for v in self.vars if v not in gone]
            self.reduced = [v for v in self.reduced if v not in gone]
            self.replace(gone)

    def split(self) -> None:
        """v // c and v % c become two loops when c divides v's extent."""
        for _ in range(12):
            found = self._split_candidate()
            if found is None:
                return
            var, by, whole = found
            high, low = self.fresh(whole), self.fresh(by)
            self._swap(var, [high, low])
            self.replace({var: of(high) * by + of(low)})

    def _split_candidate(self) -> tuple[Var, Ix, Ix] | None:
        matrix = 2 if isinstance(self.work, BatchedGemm) else 1 if self.cluster.products else 0
        fixed = self.vars[len(self.vars) - matrix :]
        for value in self.indices():
            for atom in sorted(value.atoms, key=lambda a: a.key):
                if not isinstance(atom, Fn) or atom.op not in ("floordiv", "mod"):
                    continue
                var = bare(atom.args[0])
                if var is None or var in fixed or var not in self.vars or self._scanned(var):
                    continue
                whole = exact_div(var.extent, atom.args[1])
                if whole is not None:
                    return var, atom.args[1], whole
        return None

    def _scanned(self, var: Var) -> bool:
        return isinstance(self.work, RunningTotal) and var in self.reduced

    def _swap(self, var: Var, new: list[Var]) -> None:
        at = self.vars.index(var)
        self.vars[at : at + 1] = new
        if var in self.reduced:
            at = self.reduced.index(var)
            self.reduced[at : at + 1] = new

    def merge(self, count: int) -> None:
        """Two adjacent loops, of the first `count`, that every access walks as one become one."""
        position = count - 2
        while position >= 0:
            first, second = self.vars[position], self.vars[position + 1]
            if (first in self.reduced) == (second in self.reduced) and self._walks_as_one(first, second):
                one = self.fresh(first.extent * second.extent)
                self._swap(second, [one])
                self.vars.remove(first)
                if first in self.reduced:
                    self.reduced.remove(first)
                self.replace({first: ix(0), second: of(one)})
            position -= 1

    def _walks_as_one(self, first: Var, second: Var) -> bool:
        if self._scanned(first) or self._scanned(second):
            return False
        for value in self.indices():
            if first not in value.atoms and second not in value.atoms:
                continue
            a, b = coefficient(value, first), coefficient(value, second)
            if a is None or b is None or a[0] != b[0] * second.extent:
                return False
        return True

    def nest(self) -> Nest:
        outer = [v for v in self.vars if v not in self.reduced]
        inner = [v for v in self.vars if v in self.reduced]
        vector = self.vars[-1] if self.vars else None
        if isinstance(self.work, RunningTotal) and vector in inner:
            vector = None
        return Nest(outer, inner, vector, self.stores, self.reductions, self.work, self.cluster.sources)


def _moved(work: Work, table: dict[Atom, Ix]) -> Work:
    """The same work over other loop variables. Operands that all rows share do not depend on any."""
    if not isinstance(work, BatchedGemm):
        return work
    moved: Callable[[Operand], Operand] = lambda o: Operand(o.buffer, substitute(o.offset, table))  # noqa: E731
    segments = [
        replace(s, source=None if s.source is None else moved(s.source), there=substitute(s.there, table))
        for s in work.segments
    ]
    return replace(
        work,
        left=moved(work.left) if isinstance(work.left, Operand) else work.left,
        right=moved(work.right),
        unpacked=None if work.unpacked is None else moved(work.unpacked),
        segments=segments,
    )


def elements(nest: Nest) -> Ix:
    return product(v.extent for v in (*nest.outer, *nest.inner))
