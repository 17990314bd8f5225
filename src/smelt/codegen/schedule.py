"""Which tensors are computed together: a region's tensors become clusters, each one loop nest.

Input: output tensors in the tensor language, with the buffers they must be stored in. Output: clusters in execution
order. Invariant: a cluster reads only inputs, constants, its own members, and buffers that earlier clusters stored;
every member is computed at one index, an expression of the cluster's loop variables.

A tensor joins the latest cluster among its operands' when it can be computed in that cluster's loops; since clusters
are numbered in execution order, the result is acyclic by construction. Element-wise tensors that depend on nothing
computed float: they are computed where they are used.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from smelt.ir.kernel import (
    Assemble,
    Buffer,
    Builder,
    Contraction,
    Expr,
    Function,
    Ix,
    Map,
    Reduce,
    Result,
    Scan,
    Stored,
    Tensor,
    Unsupported,
    Var,
    flat,
    ix,
    of,
    product,
)  # fmt: skip  # fmt: skip
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.index import Atom, substitute
from smelt.ir.kernel.tensor import regrouped

from .b2b_gemm import keep, link, may_keep_rows
from .cluster import (
    BatchedGemm,
    Cluster,
    Extern,
    Fill,
    Operand,
    Pack,
    PackedGemm,
    RunningTotal,
    Schedule,
    Segment,
    Store,
    UnpackedGemm,
    WindowGemm,
    operands_of,
)  # fmt: skip
from .extern import extern, give, passed
from .kernel_forms import PackedContraction, WindowKernel
from .kv_segments import keep_segments, segments_of
from .matching import bare, keeps_order, reduction_fits, relinearized, solve
from .matrices import is_steady, matrices_of, matrix_index
from .needs import element_at, inlined_below, iterated, operands_first, places, refs_in
from .prelude import ordered
from .resolve import Resolver
from .schedule_check import check_schedule
from .shared_panels import panels_of
from .sibling_gemms import absorb, earlier_sibling

Index = tuple[Ix, ...]
MEMBER_LIMIT = 160
INLINE_LIMIT = 720  # a multiple of most small numbers: a long chain of few ops over and over is cut into equal kernels
RECOMPUTE_COST = 3
COMPUTED = (Map, Reduce, Scan, Assemble, PackedContraction, Contraction, WindowKernel, Result)


def schedule(outputs: Sequence[tuple[Tensor, Buffer]]) -> Schedule:
    """Cluster everything the outputs need, and resolve each cluster to stores and reductions over loads."""
    planner = _Planner()
    roots = [(planner.computed(tensor), buffer) for tensor, buffer in outputs]
    for tensor, buffer in roots:
        planner.announce_output(tensor, buffer)
    order = operands_first([t for t, _ in roots], planner.refs)
    planner.readers.update(t for tensor in order for t in planner.refs(tensor))
    for tensor in order:
        planner.place(tensor)
    for tensor, buffer in roots:
        planner.store_output(tensor, buffer)
    return planner.schedule()


class _Planner:
    def __init__(self) -> None:
        self.clusters: list[Cluster] = []
        self.home: dict[Tensor, Cluster] = {}
        self.inlined: set[Tensor] = set()
        self.early: set[Tensor] = set()
        self.prelude: list[Cluster] = []
        self.materialized: dict[tuple[Ix, ...], Cluster] = {}
        self.buffers: dict[Tensor, Buffer] = {}
        self.outputs: dict[Tensor, list[Buffer]] = {}
        self.domains: dict[Tensor, tuple[list[Var], Expr]] = {}
        self.operands: dict[Tensor, list[Tensor]] = {}
        self.places: dict[tuple[Ix, ...], tuple[Ix, ...]] = {}
        self.inline_cost: dict[Tensor, int] = {}
        self.assembled: dict[Tensor, list[Cluster]] = {}
        self.builder = Builder()
        self.counter = itertools.count()
        self.readers: Counter[Tensor] = Counter()
        self.resolvers: dict[Cluster, Resolver] = {}
        self.calls: dict[Function, Cluster] = {}

    # what a tensor needs

    def computed(self, tensor: Tensor) -> Tensor:
        """Views and storage become an explicit copy, so that there is something to place."""
        if isinstance(tensor.definition, COMPUTED):
            return tensor
        copy = self.builder.copy(tensor)
        copy.source = tensor.source
        return copy

    def domain(self, tensor: Tensor) -> tuple[list[Var], Expr]:
        """Fresh loop variables over what the tensor iterates, and its element in terms of operands' elements."""
        if tensor in self.domains:
            return self.domains[tensor]
        loops = [Var(f"i{next(self.counter)}", size) for size in iterated(tensor)]
        element = element_at(tensor, tuple(places(loops).values()))
        return self.domains.setdefault(tensor, (loops, element))

    def element(self, tensor: Tensor) -> Expr:
        """As of `domain`, at an index that all tensors of the shape share: most never have loops of their own."""
        if tensor in self.domains:
            return self.domains[tensor][1]
        over = iterated(tensor)
        if over not in self.places:
            self.places[over] = tuple(places([Var(f"i{next(self.counter)}", size) for size in over]).values())
        return element_at(tensor, self.places[over])

    def refs(self, tensor: Tensor) -> list[Tensor]:
        """What is computed and read for the tensor, views looked through."""
        found = self.operands.get(tensor)
        if found is None:
            found = self.operands[tensor] = self._refs_of(tensor)
        return found

    def _refs_of(self, tensor: Tensor) -> list[Tensor]:
        definition = tensor.definition
        if isinstance(definition, Assemble):
            return [t for _, piece in definition.pieces for t in self._through(piece)]
        if isinstance(definition, PackedContraction):
            return self._through(definition.a)
        if isinstance(definition, (Contraction, WindowKernel)):
            return [t for operand in (definition.a, definition.b) if operand for t in self._through(operand)]
        if isinstance(definition, Result):
            return [t for operand in definition.function.operands if operand for t in self._through(operand)]
        return list(dict.fromkeys(r.tensor for r in refs_in(self.element(tensor))))

    def _through(self, tensor: Tensor) -> list[Tensor]:
        if isinstance(tensor.definition, COMPUTED):
            return [tensor]
        where = tuple(of(Var(f"i{next(self.counter)}", s)) for s in tensor.shape)
        return list(dict.fromkeys(r.tensor for r in refs_in(tensor.at(where))))

    # placing

    def place(self, tensor: Tensor) -> None:
        definition = tensor.definition
        if isinstance(definition, Assemble):
            self._place_assemble(tensor, definition)
        elif isinstance(definition, PackedContraction):
            self._place_matmul(tensor, definition)
        elif isinstance(definition, Contraction):
            self._place_product(tensor, definition)
        elif isinstance(definition, WindowKernel):
            self._place_window(tensor, definition)
        elif isinstance(definition, Scan):
            self._place_scan(tensor, definition)
        elif isinstance(definition, Result):
            self._place_result(tensor, definition)
        elif isinstance(definition, Map) and all(t in self.inlined or t in self.early for t in self.refs(tensor)):
            self._float(tensor)
        else:
            self._place_loops(tensor)

    def _float(self, tensor: Tensor) -> None:
        """Nothing computed below: keep it inlined, unless it has grown costly enough to be worth its own loop."""
        element = self.element(tensor)
        below = sum(self.inline_cost[t] for t in self.refs(tensor) if t in self.inlined)
        self.inline_cost[tensor] = below + sum(E.cost(e) for e in E.walk(element))
        self.inlined.add(tensor)
        if self.inline_cost[tensor] >= INLINE_LIMIT:
            self._materialize(tensor)

    def _materialize(self, tensor: Tensor) -> None:
        """Give an inlined tensor loops of its own, before every other cluster: it depends on nothing computed."""
        self.inlined.discard(tensor)
        self.early.add(tensor)
        loops, element = self.domain(tensor)
        self._materialize_broadcast(loops, element)
        cluster = Cluster(-1, [v for v in loops if v.extent.const != 1])
        self.prelude.append(cluster)
        self._join(tensor, cluster, {v: ix(0) if v.extent.const == 1 else of(v) for v in loops})

    def _materialize_output(self, tensor: Tensor) -> None:
        """Outputs over the same space share one loop nest."""
        loops, _ = self.domain(tensor)
        space = tuple(v.extent for v in loops if v.extent.const != 1)
        cluster = self.materialized.get(space)
        if cluster is None or len(cluster.members) >= MEMBER_LIMIT:
            self._materialize(tensor)
            self.materialized[space] = self.home[tensor]
            return
        self.inlined.discard(tensor)
        self.early.add(tensor)
        self._materialize_broadcast(*self.domain(tensor))
        over = iter(cluster.vars)
        self._join(tensor, cluster, {v: ix(0) if v.extent.const == 1 else of(next(over)) for v in loops})

    def _new(self, loops: list[Var], at: int | None = None) -> Cluster:
        """A cluster at the end, or as number `at` of the order."""
        cluster = Cluster(len(self.clusters) if at is None else at, loops)
        for later in self.clusters[cluster.order :]:
            later.order += 1
        self.clusters.insert(cluster.order, cluster)
        return cluster

    def _place_loops(self, tensor: Tensor) -> None:
        loops, element = self.domain(tensor)
        self._materialize_broadcast(loops, element)
        latest = self._united(tensor)
        bound = self._fit(tensor, latest) if latest is not None else None
        if latest is None or bound is None:
            # What depends on nothing computed comes first, so that whoever reads it may join any cluster.
            latest, bound = self._own(loops, 0 if latest is None else None)
        self._join(tensor, latest, bound)

    def _united(self, tensor: Tensor) -> Cluster | None:
        """The latest cluster among the operands'; products of one operand that meet here become one cluster."""
        refs = self.refs(tensor)
        latest = self._latest(refs)
        if latest is None or not isinstance(tensor.definition, Map):
            return latest
        first = earlier_sibling(latest, [self.home[t] for t in refs if t in self.home])
        if first is None or not self._ready_before(latest, first):
            return latest
        self.home.update((moved, first) for moved in absorb(first, latest))
        return first

    def _ready_before(self, cluster: Cluster, first: Cluster) -> bool:
        """Whether all that the cluster's members read was stored before `first` starts."""
        below = {t for m in cluster.members if m not in cluster.products for t in self.refs(m)}
        outside = [t for t in below if t not in cluster.members and t not in self.inlined and t not in self.early]
        return all(self.home[t].order < first.order for t in outside)

    def _own(self, loops: Sequence[Var], at: int | None = None) -> tuple[Cluster, dict[Var, Ix]]:
        cluster = self._new([v for v in loops if v.extent.const != 1], at)
        return cluster, {v: ix(0) if v.extent.const == 1 else of(v) for v in loops}

    def _join(self, tensor: Tensor, cluster: Cluster, bound: dict[Var, Ix]) -> None:
        definition = tensor.definition
        where = [bound[v] for v in self.domain(tensor)[0]]
        if isinstance(definition, Reduce):
            inner = [bare(where[a]) for a in definition.axes]
            if not cluster.reduced:
                cluster.reduced = [v for v in cluster.vars if v in inner]
            where = [ix(0) if a in definition.axes else w for a, w in enumerate(where)]
        cluster.members[tensor] = tuple(where)
        cluster.bound[tensor] = bound
        self.home[tensor] = cluster
        if tensor.source and tensor.source not in cluster.sources:
            cluster.sources.append(tensor.source)

    def _latest(self, refs: Iterable[Tensor]) -> Cluster | None:
        """The last cluster among those that compute the operands, floats looked through."""
        last: Cluster | None = None
        for tensor in refs:
            if tensor in self.inlined or tensor in self.early:
                continue
            home = self.home[tensor]
            if last is None or home.order > last.order:
                last = home
        return last

    def _materialize_broadcast(self, loops: Sequence[Var], element: Expr) -> None:
        """A costly inlined operand that is read more often than it has elements is computed once, on its own."""
        space = product(v.extent for v in loops)
        for ref in refs_in(element):
            operand = ref.tensor
            if operand in self.inlined and self.inline_cost[operand] > RECOMPUTE_COST and operand.elements != space:
                self._materialize(operand)

    # fitting a tensor into existing loops

    def _fit(self, tensor: Tensor, cluster: Cluster) -> dict[Var, Ix] | None:
        if len(cluster.members) >= MEMBER_LIMIT or isinstance(cluster.work, (RunningTotal, Fill)):
            return None
        loops, element = self.domain(tensor)
        if cluster.producer is not None and any(self.home.get(r.tensor) is cluster.producer for r in refs_in(element)):
            return None  # the producer runs in the same task: other tasks' rows may not be there yet
        refs = [r for r in refs_in(element) if self.home.get(r.tensor) is cluster]
        if any(r.tensor not in cluster.members for r in refs):
            return None
        bound = self._match(loops, refs, cluster)
        if bound is not None and self._fits(tensor, cluster, loops, refs, bound):
            return bound
        bound = relinearized(loops, cluster)
        return bound if bound is not None and self._fits(tensor, cluster, loops, refs, bound) else None

    def _match(self, loops: Sequence[Var], refs: Sequence[E.Ref], cluster: Cluster) -> dict[Var, Ix] | None:
        """Bind variables from where the operands are computed."""
        bound: dict[Var, Ix] = {v: ix(0) for v in loops if v.extent.const == 1}
        for ref in refs:
            for var, value in solve(ref.index, cluster.members[ref.tensor]).items():
                bound.setdefault(var, value)
        used = frozenset(a for value in bound.values() for a in value.vars)
        free = [v for v in cluster.vars if v not in used]
        for var in loops:
            if var in bound:
                continue
            match = next((f for f in free if f.extent == var.extent), None)
            if match is None:
                return None
            bound[var] = of(match)
            free.remove(match)
        return bound

    def _fits(
        self, tensor: Tensor, cluster: Cluster, loops: Sequence[Var], refs: Sequence[E.Ref], bound: Mapping[Var, Ix]
    ) -> bool:
        table: dict[Atom, Ix] = {v: bound[v] for v in loops}
        for ref in refs:
            where = tuple(substitute(i, table) for i in ref.index)
            if where != cluster.members[ref.tensor]:
                return False
        used = frozenset(v for value in bound.values() for v in value.vars)
        if product(v.extent for v in loops) != product(v.extent for v in cluster.vars if v in used):
            return False
        spare = [v for v in cluster.vars if v not in used and v.extent.const != 1]
        if isinstance(tensor.definition, Reduce):
            return not spare and reduction_fits(tensor.definition, cluster, [bound[v] for v in loops])
        return all(v in cluster.reduced for v in spare) and keeps_order(cluster, loops, bound, spare)

    # special placements

    def _place_matmul(self, tensor: Tensor, definition: PackedContraction) -> None:
        producer = self._row_producer(definition)
        left = producer or Operand(self._stored(definition.a), ix(0))
        loops = [Var(f"i{next(self.counter)}", size) for size in tensor.shape]
        self.domains[tensor] = loops, E.ref(tensor, tuple(places(loops).values()))
        cluster = self._new(list(loops), None if producer is None else producer.order + 1)
        cluster.work = PackedGemm(tensor, left)
        self._join(tensor, cluster, places(loops))

    def _row_producer(self, definition: PackedContraction) -> Cluster | None:
        """The cluster that makes the left operand for nobody else, when it can be read in the task that makes it."""
        made, panels = definition.a, definition.a.shape[-1] * definition.columns
        producer = self.home.get(made)
        if producer is None or self.readers[made] != 1 or made in self.outputs:
            return None
        if not may_keep_rows(producer, made, panels):
            return None
        keep(producer, made)
        return producer

    def _place_product(self, tensor: Tensor, definition: Contraction) -> None:
        """The right operand is packed first; both are read in place, transposed or not."""
        loops = [Var(f"i{next(self.counter)}", size) for size in tensor.shape]
        depth = Var(f"i{next(self.counter)}", definition.a.shape[-1])
        over = (*loops[:-2], depth, loops[-1])
        source = self._operand(definition.b, over, None)
        if self._place_unpacked(tensor, definition, source, loops, depth):
            return
        producer = self._producer(definition, loops, depth, self._written_by(source.buffer))
        left = producer or self._operand(definition.a, (*loops[:-1], depth), depth)
        fresh: Callable[[Ix], Var] = lambda extent: Var(f"i{next(self.counter)}", extent)  # noqa: E731
        pack, panels = panels_of(source, loops, depth, f"t{len(self.buffers)}", fresh)
        self.buffers[Tensor(pack.target.shape, "f32", Stored(pack.target))] = pack.target
        before, after = (producer.order, producer.order + 2) if producer is not None else (None, None)
        self._new([], before).work = pack
        self.domains[tensor] = loops, E.ref(tensor, tuple(places(loops).values()))
        cluster = self._new(list(loops), after)
        cluster.work = made = BatchedGemm(tensor, left, panels, depth)
        if pack.rows is not None:
            made.unpacked, made.segments = source, self._segments(definition.b, over)
        self._join(tensor, cluster, places(loops))

    def _place_unpacked(
        self, tensor: Tensor, definition: Contraction, right: Operand, loops: list[Var], depth: Var
    ) -> bool:
        """Where all rows share the right operand, tasks pack what they need of it; True when placed so."""
        if definition.b.rank != 2:
            return False
        left = self._operand(definition.a, (*loops[:-1], depth), None)
        matrices = matrices_of(left, right, loops, depth)
        if matrices is None:
            return False
        self.domains[tensor] = loops, E.ref(tensor, tuple(places(loops).values()))
        cluster = self._new(list(loops))
        cluster.work = UnpackedGemm(tensor, depth, *matrices)
        self._join(tensor, cluster, places(loops))
        return True

    def _segments(self, tensor: Tensor, over: Sequence[Var]) -> list[Segment]:
        element = tensor.at(matrix_index(over, tensor.shape))
        homes = self.assembled.get(element.kind.tensor, []) if isinstance(element.kind, E.Ref) else []
        return segments_of(element, over, homes)

    def _place_window(self, tensor: Tensor, definition: WindowKernel) -> None:
        image = Operand(self._stored(definition.a), ix(0))
        panels = self._stored(definition.b) if definition.b is not None else None
        loops = [Var(f"i{next(self.counter)}", size) for size in tensor.shape]
        bound = {v: ix(0) if v.extent.const == 1 else of(v) for v in loops}
        self.domains[tensor] = loops, E.ref(tensor, tuple(bound[v] for v in loops))
        cluster = self._new([v for v in loops if v.extent.const != 1 or v is loops[-1]])
        cluster.work = WindowGemm(tensor, image, panels)
        self._join(tensor, cluster, bound)

    def _producer(self, definition: Contraction, loops: Sequence[Var], depth: Var, ready: int) -> Cluster | None:
        """An earlier product that can keep this one's left operand in its block, if the right one is ready by then."""
        element = definition.a.at(matrix_index((*loops[:-1], depth), definition.a.shape))
        producer = self.home.get(element.kind.tensor) if isinstance(element.kind, E.Ref) else None
        member = link(producer, element, loops, depth) if producer is not None and ready < producer.order else None
        if producer is None or member is None:
            return None
        keep(producer, member)
        return producer

    def _written_by(self, buffer: Buffer) -> int:
        """The number of the cluster that fills a buffer; -1 for what is there before all of them."""
        made = [t for t, b in self.buffers.items() if b.uid == buffer.uid]
        made += [t for t, targets in self.outputs.items() if any(b.uid == buffer.uid for b in targets)]
        return max((self.home[t].order for t in made if t in self.home), default=-1)

    def _operand(self, tensor: Tensor, over: Sequence[Var], contiguous: Var | None) -> Operand:
        """Where a product's operand lies in memory. What is not stored with constant steps is copied first."""
        element = tensor.at(matrix_index(over, tensor.shape))
        found = self._unpacked(element)
        if found is not None and is_steady(found.offset, over[-2:], contiguous):
            return found
        copy = self.builder.copy(tensor)
        copy.source = tensor.source
        self.place(copy)
        if copy in self.inlined:
            self._materialize(copy)
        where = matrix_index(over, copy.shape)
        return Operand(self.buffer(copy), flat(where, copy.shape))

    def _unpacked(self, element: Expr) -> Operand | None:
        kind = element.kind
        if isinstance(kind, E.Load):
            return Operand(kind.buffer, kind.offset)
        if not isinstance(kind, E.Ref):
            return None
        if kind.tensor in self.inlined:
            self._materialize(kind.tensor)
        return Operand(self.buffer(kind.tensor), flat(kind.index, kind.tensor.shape))

    def _stored(self, tensor: Tensor) -> Buffer:
        """The buffer that holds a product's operand: it must lie in memory, row by row."""
        if isinstance(tensor.definition, Stored):
            return tensor.definition.buffer
        same = regrouped(tensor)
        if same is not None:
            return self._stored(same)
        made = self.computed(tensor)
        if made not in self.home:
            self.place(made)
        if made in self.inlined:
            self._materialize(made)
        return self.buffer(made)

    def _place_result(self, tensor: Tensor, definition: Result) -> None:
        cluster = self.calls.get(definition.function)
        if cluster is None:
            cluster = extern(definition.function, self._contiguous, self.buffers)
            cluster.order = len(self.clusters)
            self.clusters.append(cluster)
            self.calls[definition.function] = cluster
        self.home[tensor] = cluster
        give(cluster, tensor, definition.place, self.buffer(tensor))

    def _contiguous(self, tensor: Tensor) -> Buffer:
        """The buffer that begins with the tensor's elements, in their order; a copy where no such buffer is there."""
        where = tuple(places([Var(f"i{next(self.counter)}", s) for s in tensor.shape]).values())
        found = self._unpacked(tensor.at(where))
        return found.buffer if found and found.offset == flat(where, tensor.shape) else self._stored(tensor)

    def _place_scan(self, tensor: Tensor, definition: Scan) -> None:
        loops, element = self.domain(tensor)
        self._materialize_broadcast(loops, element)
        cluster, bound = self._own(loops)
        cluster.work = RunningTotal(tensor)
        axis = loops[definition.axis]
        cluster.reduced = [axis] if axis in cluster.vars else []
        self._join(tensor, cluster, bound)

    def _place_assemble(self, tensor: Tensor, definition: Assemble) -> None:
        buffer = self.buffer(tensor)
        if definition.fill is not None:
            loops = [Var(f"i{next(self.counter)}", tensor.elements)]
            self._new(loops).work = Fill(buffer, definition.fill)
        for offset, piece in definition.pieces:
            self._place_piece(tensor, buffer, offset, piece, after_fill=definition.fill is not None)
        self.home[tensor] = self._new([])

    def _place_piece(self, whole: Tensor, buffer: Buffer, offset: Index, piece: Tensor, *, after_fill: bool) -> None:
        copy = self.builder.copy(piece)
        copy.source = whole.source
        loops, element = self.domain(copy)
        self._materialize_broadcast(loops, element)
        latest = None if after_fill else self._latest(self.refs(copy))
        bound = self._fit(copy, latest) if latest is not None else None
        if latest is None or bound is None:
            latest, bound = self._own(loops)
        where = tuple(bound[v] for v in loops)
        self._join(copy, latest, bound)
        self.assembled.setdefault(whole, []).append(latest)
        latest.pieces.append((copy, where, buffer, tuple(w + o for w, o in zip(where, offset, strict=True))))

    # storing

    def buffer(self, tensor: Tensor) -> Buffer:
        if tensor in self.outputs and tensor not in self.buffers:
            return self.outputs[tensor][0]
        if tensor not in self.buffers:
            self.buffers[tensor] = Buffer(f"t{len(self.buffers)}", tensor.dtype, tensor.shape)
        return self.buffers[tensor]

    def announce_output(self, tensor: Tensor, buffer: Buffer) -> None:
        """What is read inside as well is read from its output. An assembled one is redirected at the end."""
        if not isinstance(tensor.definition, Assemble):
            self.outputs.setdefault(tensor, []).append(buffer)

    def store_output(self, tensor: Tensor, buffer: Buffer) -> None:
        if tensor in self.inlined:
            self._materialize_output(tensor)
        if isinstance(tensor.definition, Assemble):
            self.outputs.setdefault(tensor, []).append(buffer)

    def schedule(self) -> Schedule:
        self._share_floats()
        self.clusters = ordered(self.prelude, self.inlined) + self.clusters
        self.home.update((tensor, c) for c in self.clusters for tensor in c.members)
        for cluster in self.clusters:
            self.resolvers[cluster] = Resolver(self, cluster)
            self.resolvers[cluster].run()
        loaded = {load.buffer.uid for r in self.resolvers.values() for load in r.loads()}
        keep_segments(self.clusters, loaded | passed(self.clusters))
        self._store_used()
        kept = [c for c in self.clusters if c.stores or c.kept is not None or isinstance(c.work, (Pack, Extern))]
        check_schedule(kept)
        return Schedule(kept, self.buffers)

    def _share_floats(self) -> None:
        """A costly float used by several clusters is computed once."""
        users: dict[Tensor, set[int]] = {}
        for tensor, cluster in list(self.home.items()):
            if isinstance(tensor.definition, (Assemble, PackedContraction, Contraction, WindowKernel, Result)):
                continue
            for ref in inlined_below(tensor, self.refs, self.inlined):
                users.setdefault(ref, set()).add(id(cluster))
        for tensor, orders in users.items():
            if len(orders) > 1 and self.inline_cost[tensor] > RECOMPUTE_COST and tensor in self.inlined:
                self._materialize(tensor)

    def _store_used(self) -> None:
        """Add the stores: outputs, and members that other clusters load."""
        loaded = {load.buffer.uid for resolver in self.resolvers.values() for load in resolver.loads()}
        loaded |= {buffer.uid for c in self.clusters for buffer in operands_of(c.work)}
        for cluster in self.clusters:
            resolver = self.resolvers[cluster]
            for tensor, where in cluster.members.items():
                if isinstance(tensor.definition, Assemble):
                    continue
                targets = list(self.outputs.get(tensor, ()))
                if tensor in self.buffers and self.buffers[tensor].uid in loaded:
                    targets.append(self.buffers[tensor])
                cluster.stores += [Store(b, flat(where, tensor.shape), resolver.member(tensor)) for b in targets]
            if cluster.kept is not None:
                cluster.stores.append(Store(cluster.kept[1], of(cluster.vars[-1]), resolver.member(cluster.kept[0])))
        self._store_assembled_outputs()

    def _store_assembled_outputs(self) -> None:
        """An assembled output is built in place: its temporary is the output buffer itself."""
        for tensor, targets in self.outputs.items():
            if isinstance(tensor.definition, Assemble):
                self._redirect(self.buffers[tensor], targets[0])
                if len(targets) > 1:
                    raise Unsupported("one assembled value is needed as two outputs")

    def _redirect(self, old: Buffer, new: Buffer) -> None:
        old.name, old.uid = new.name, new.uid
        for tensor in [one for one, buffer in self.buffers.items() if buffer is old]:
            del self.buffers[tensor]
