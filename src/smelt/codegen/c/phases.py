"""The passes over the inner loops of one nest: what each accumulates, stores and keeps for later ones.

Input: a `Nest`. Output: `Phases`. Invariant: a reduction is read only in phases after the one that accumulates it. A
value that a later phase needs again is kept in a row buffer when computing it again would cost more than a load.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from smelt.codegen.cluster import Reduction, Store
from smelt.codegen.loops import Nest
from smelt.ir.kernel import Buffer, Expr, Ix, Tensor, flat, of
from smelt.ir.kernel import expr as E

KEEP_COST = 2


@dataclass
class Phases:
    """`reload` says where a kept value is read from; `made` are the expressions that a phase computes itself."""

    count: int = 0
    reductions: list[list[Reduction]] = field(default_factory=list[list[Reduction]])
    stores: list[list[Store]] = field(default_factory=list[list[Store]])
    saves: list[list[tuple[Expr, Buffer, Ix]]] = field(default_factory=list[list[tuple[Expr, Buffer, Ix]]])
    made: list[set[int]] = field(default_factory=list[set[int]])
    cost: list[int] = field(default_factory=list[int])
    row_stores: list[Store] = field(default_factory=list[Store])
    row_buffers: list[Buffer] = field(default_factory=list[Buffer])
    reload: dict[int, tuple[Buffer, Ix]] = field(default_factory=dict[int, tuple[Buffer, Ix]])


def plan_phases(nest: Nest) -> Phases:
    return _Planner(nest).plan()


class _Planner:
    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.inner = frozenset(nest.inner)
        self.by_tensor = {r.tensor: r for r in nest.reductions}
        self.levels: dict[int, int] = {}
        self.deep: dict[int, bool] = {}
        self.by_lanes: dict[int, bool] = {}
        self.reduction_level: dict[Tensor, int] = {}
        self.out = Phases()
        self.readers: list[set[int]] = []

    def plan(self) -> Phases:
        for reduction in self._sorted():
            self.reduction_level[reduction.tensor] = self._level(reduction.value) + 1
        levels = [*self.reduction_level.values(), *(self._level(s.value) + 1 for s in self.nest.stores)]
        self.out.count = max(levels, default=0)
        for phase in range(self.out.count):
            self.out.reductions.append([r for r in self.nest.reductions if self.reduction_level[r.tensor] == phase + 1])
            self.out.stores.append([s for s in self.nest.stores if self._in_loops(s) and self._level(s.value) == phase])
        self.out.row_stores = [s for s in self.nest.stores if not self._in_loops(s)]
        self._drop_idle_end()
        for phase in range(self.out.count):
            self._keep(phase)
        self._share_row_buffers()
        return self.out

    def _share_row_buffers(self) -> None:
        """A row buffer whose last reader has passed is used again: the row stays in L1."""
        last = {b.uid: 0 for b in self.out.row_buffers}
        for uid, (buffer, _) in self.out.reload.items():
            for phase in range(self.out.count):
                if uid in self.readers[phase] and buffer.uid in last:
                    last[buffer.uid] = phase
        owners: list[tuple[Buffer, int]] = []
        moved: dict[int, Buffer] = {}
        for phase in range(self.out.count):
            for _, buffer, _ in self.out.saves[phase]:
                place = next((i for i, (o, end) in enumerate(owners) if end < phase and o.dtype == buffer.dtype), None)
                if place is None:
                    owners.append((buffer, last[buffer.uid]))
                    moved[buffer.uid] = buffer
                else:
                    moved[buffer.uid] = owners[place][0]
                    owners[place] = owners[place][0], last[buffer.uid]
        self.out.row_buffers = [b for b, _ in owners]
        self.out.saves = [[(n, moved[b.uid], o) for n, b, o in saves] for saves in self.out.saves]
        self.out.reload = {u: (moved.get(b.uid, b), o) for u, (b, o) in self.out.reload.items()}

    def _sorted(self) -> list[Reduction]:
        """Reductions after those that they depend on."""
        order: list[Reduction] = []
        left = list(self.nest.reductions)
        while left:
            known = {r.tensor for r in order}
            ready = [r for r in left if all(t in known for t in self._needs(r))]
            assert ready, "reductions depend on each other in a circle"
            order += ready
            left = [r for r in left if r not in ready]
        return order

    def _needs(self, reduction: Reduction) -> list[Tensor]:
        return [
            e.kind.tensor
            for e in E.walk(reduction.value)
            if isinstance(e.kind, E.Ref) and e.kind.tensor in self.by_tensor
        ]

    def _level(self, root: Expr) -> int:
        for node in E.walk(root, known=self.levels):
            kind = node.kind
            if isinstance(kind, E.Ref):
                self.levels[node.uid] = self.reduction_level.get(kind.tensor, 0)
                self.deep[node.uid] = kind.tensor in self.nest.products and bool(self.inner)
                self.by_lanes[node.uid] = self.deep[node.uid]
            else:
                below = E.children(node)
                self.levels[node.uid] = max((self.levels[c.uid] for c in below), default=0)
                own = E.own_vars(node)
                self.deep[node.uid] = bool(own & self.inner) or any(self.deep[c.uid] for c in below)
                self.by_lanes[node.uid] = self.nest.vector in own or any(self.by_lanes[c.uid] for c in below)
        return self.levels[root.uid]

    def _in_loops(self, store: Store) -> bool:
        """Whether a store happens at every point of the inner loops. Without inner loops there is one point."""
        self._level(store.value)
        return not self.inner or bool(store.offset.vars & self.inner) or self.deep[store.value.uid]

    def _drop_idle_end(self) -> None:
        """A last phase with nothing in its loops is only row stores."""
        while self.out.count and not self.out.reductions[-1] and not self.out.stores[-1]:
            self.out.reductions.pop()
            self.out.stores.pop()
            self.out.count -= 1

    def _keep(self, phase: int) -> None:
        roots = [r.value for r in self.out.reductions[phase]] + [s.value for s in self.out.stores[phase]]
        roots += [r.position for r in self.out.reductions[phase] if r.position is not None and r.kind.startswith("arg")]
        made: set[int] = set()
        cost = 0
        self.out.saves.append([])
        self.readers.append(set())
        for node in self._needed(roots, phase):
            made.add(node.uid)
            cost += E.cost(node) if self.deep[node.uid] or not self.inner else 0
        self.out.made.append(made)
        self.out.cost.append(cost + sum(1 for _ in self.out.stores[phase]) + len(self.out.reductions[phase]))

    def _needed(self, roots: list[Expr], phase: int) -> list[Expr]:
        """What this phase computes, operands first; kept values end the search."""
        order: list[Expr] = []
        seen: set[int] = set()
        stack: list[tuple[Expr, bool]] = [(r, False) for r in reversed(roots)]
        while stack:
            node, ready = stack.pop()
            if ready:
                order.append(node)
                continue
            if node.uid in seen:
                continue
            seen.add(node.uid)
            if self._kept(node, phase):
                self.readers[phase].add(node.uid)
                continue
            stack.append((node, True))
            stack.extend((c, False) for c in E.children(node))
        return order

    def _kept(self, node: Expr, phase: int) -> bool:
        if node.uid in self.out.reload:
            return True
        self._level(node)
        if not self.deep[node.uid] or isinstance(node.kind, (E.Load, E.Ref, E.Const, E.Index)):
            return False
        if self.nest.vector not in self.inner or self._weight(node) <= KEEP_COST:
            return False
        if not self.by_lanes[node.uid]:
            return False  # it is computed outside of the vector loop, where a row buffer has no place for it
        first = next((p for p in range(phase) if node.uid in self.out.made[p]), None)
        if first is None:
            return False
        self.out.reload[node.uid] = self._place(node, first)
        return True

    def _weight(self, root: Expr) -> int:
        """The cost of computing it again, kept values at the cost of a load."""
        total = 0
        seen: set[int] = set()
        stack = [root]
        while stack and total <= KEEP_COST:
            node = stack.pop()
            if node.uid in seen or not self.deep.get(node.uid):
                continue
            seen.add(node.uid)
            if node.uid in self.out.reload or isinstance(node.kind, E.Load):
                total += 1
                continue
            total += E.cost(node)
            stack.extend(E.children(node))
        return total

    def _place(self, node: Expr, phase: int) -> tuple[Buffer, Ix]:
        """Where a kept value lies: in a buffer that it is stored to anyway, or in a row buffer."""
        for store in self.out.stores[phase]:
            if store.value is node:
                return store.buffer, store.offset
        sizes = tuple(v.extent for v in self.nest.inner)
        buffer = Buffer(f"row{len(self.out.row_buffers)}", node.dtype, sizes)
        self.out.row_buffers.append(buffer)
        offset = flat(tuple(of(v) for v in self.nest.inner), sizes)
        self.out.saves[phase].append((node, buffer, offset))
        return buffer, offset
