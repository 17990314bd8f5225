"""References become what they stand for: a cluster's elements in terms of loads and its own reductions.

Input: a cluster and where every tensor was placed. Output: resolved expressions. Invariant: iterative, so that
chains of any length resolve; an operand of another cluster is a load from its buffer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from smelt.ir.kernel import Buffer, Expr, Ix, Map, Reduce, Scan, Tensor, Val, Var, flat, of
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.index import Atom, substitute

from .cluster import Cluster, Fill, Reduction, Store


class Placement(Protocol):
    """What resolving asks of the scheduler."""

    inlined: set[Tensor]
    readers: Counter[Tensor]

    def domain(self, tensor: Tensor) -> tuple[list[Var], Expr]: ...

    def buffer(self, tensor: Tensor) -> Buffer: ...


class Resolver:
    """Rewrites a cluster's elements until only loads, indices and its own reductions remain. Iterative."""

    def __init__(self, planner: Placement, cluster: Cluster) -> None:
        self.planner = planner
        self.cluster = cluster
        self.done: dict[int, Expr] = {}

    def run(self) -> None:
        cluster = self.cluster
        if isinstance(cluster.work, Fill):
            buffer, value = cluster.work.buffer, cluster.work.value
            cluster.stores.append(Store(buffer, of(cluster.vars[0]), E.const(value, buffer.dtype)))
            return
        for tensor in list(cluster.members):
            self.member(tensor)
        for tensor, _, buffer, place in cluster.pieces:
            value = self.resolve(self._element(tensor))
            cluster.stores.append(Store(buffer, flat(place, buffer.shape), value))
            del cluster.members[tensor]

    def member(self, tensor: Tensor) -> Expr:
        where = self.cluster.members[tensor]
        definition = tensor.definition
        if isinstance(definition, Map):
            return self.resolve(self._element(tensor))
        if isinstance(definition, (Reduce, Scan)) and tensor not in self.cluster.reductions:
            loops, element = self.planner.domain(tensor)
            table: dict[Atom, Ix] = {**self.cluster.bound[tensor]}
            value = self.resolve(replace_index(element, table))
            axis = definition.axes[0] if isinstance(definition, Reduce) else definition.axis
            position = E.index(substitute(of(loops[axis]), table))
            self.cluster.reductions[tensor] = Reduction(tensor, definition.kind, value, position)
        return E.ref(tensor, where)

    def _element(self, tensor: Tensor) -> Expr:
        """A member in terms of its operands, at the very indices that scheduling compared: simplifying them in another
        order may give another form of the same index, and a member that is not recognized would be loaded too early."""
        table: dict[Atom, Ix] = {**self.cluster.bound[tensor]}
        return replace_index(self.planner.domain(tensor)[1], table)

    def resolve(self, root: Expr) -> Expr:
        stack: list[tuple[Expr, Expr | None]] = [(root, None)]
        while stack:
            node, target = stack[-1]
            if node.uid in self.done:
                stack.pop()
                continue
            if target is None:
                target = self._step(node)
                stack[-1] = (node, target)
            if target is not node:
                if target.uid not in self.done:
                    stack.append((target, None))
                    continue
                self.done[node.uid] = self.done[target.uid]
                stack.pop()
                continue
            waiting = [c for c in E.children(node) if c.uid not in self.done]
            if waiting:
                stack.extend((c, None) for c in waiting)
                continue
            self.done[node.uid] = self._rebuild(node)
            stack.pop()
        return self.done[root.uid]

    def _step(self, node: Expr) -> Expr:
        """A reference becomes what it stands for; anything else stays."""
        kind = node.kind
        if not isinstance(kind, E.Ref):
            return node
        tensor, where = kind.tensor, kind.index
        own = self.cluster.members.get(tensor)
        if own is not None and own == where:
            if isinstance(tensor.definition, Map):
                return self._element(tensor)
            if isinstance(tensor.definition, Reduce):
                self.member(tensor)
            return node
        if tensor in self.planner.inlined:
            made = tensor.expand(where)
            return E.rounded(made) if self.planner.readers[tensor] > 1 else made
        return E.load(self.planner.buffer(tensor), flat(where, tensor.shape))

    def _rebuild(self, node: Expr) -> Expr:
        kind = node.kind
        if isinstance(kind, E.Op):
            return E.op(kind.name, *(self.done[a.uid] for a in kind.args), dtype=node.dtype)
        if isinstance(kind, E.Load):
            return E.load(kind.buffer, self._index(kind.offset))
        if isinstance(kind, E.Index):
            return E.index(self._index(kind.ix), node.dtype)
        return node

    def _index(self, value: Ix) -> Ix:

        table: dict[Atom, Ix] = {}
        for atom in value.atoms:
            if isinstance(atom, Val) and self.done[atom.expr.uid] is not atom.expr:
                table[atom] = of(replace(atom, expr=self.done[atom.expr.uid]))
        return substitute(value, table)

    def loads(self) -> list[E.Load]:
        """Everything that the cluster reads from memory."""
        roots = [s.value for s in self.cluster.stores] + [r.value for r in self.cluster.reductions.values()]
        return [e.kind for e in E.walk(*roots, *self.done.values()) if isinstance(e.kind, E.Load)]


def replace_index(root: Expr, table: Mapping[Atom, Ix]) -> Expr:
    """The same expression at other indices."""

    if all(isinstance(a, Var) and i == of(a) for a, i in table.items()):
        return root
    done: dict[int, Expr] = {}

    def move(value: Ix) -> Ix:
        full = dict(table)
        for atom in value.atoms:
            if isinstance(atom, Val):
                full[atom] = of(replace(atom, expr=done[atom.expr.uid]))
        return substitute(value, full)

    for node in E.walk(root):
        kind = node.kind
        if isinstance(kind, E.Op):
            done[node.uid] = E.op(kind.name, *(done[a.uid] for a in kind.args), dtype=node.dtype)
        elif isinstance(kind, E.Load):
            done[node.uid] = E.load(kind.buffer, move(kind.offset))
        elif isinstance(kind, E.Index):
            done[node.uid] = E.index(move(kind.ix), node.dtype)
        elif isinstance(kind, E.Ref):
            done[node.uid] = E.ref(kind.tensor, tuple(move(i) for i in kind.index))
        else:
            done[node.uid] = node
    return done[root.uid]
