"""Makes tensors: the functions that op declarations are written in.

Input: tensors and attributes. Output: new tensors, and the requirements that must hold at run time. Invariant: a shape
that is not provable is required; what cannot be stated is `Unsupported`, never a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import overload

from smelt.base.dtype import BY_NAME

from . import expr as E
from .contents import contents
from .expr import Expr
from .index import Atom, Fn, Ix, IxLike, Unsupported, Val, fn, ix, members_of, of, one_not_1, substitute
from .layout import Index, axis_groups, flat, regroup
from .resampling import Taps, weighted
from .run_time_sizes import agree, broadcast_size, covers, equality
from .tensor import (
    Assemble,
    Buffer,
    Contraction,
    Convolution,
    Definition,
    Function,
    Map,
    Pool,
    Reduce,
    Result,
    Scan,
    Stored,
    Tensor,
    View,
    aligned,
    regrouped,
)
from .window import Geometry

SIZE_TEXT_LIMIT = 3000


@dataclass
class Builder:
    """Makes tensors and collects what must hold at run time. One per region (or per shape analysis).

    When `assuming`, sizes that are equal wherever it was tried are taken to be equal; `assumed` says that some were,
    and that a requirement may fail where the op itself would not. `same` are sizes of two spellings. `equal` are
    symbols that an op's own rule makes another size in every run; `found_equal` those that were seen here."""

    requirements: list[tuple[Ix, Ix, str]] = field(default_factory=list[tuple[Ix, Ix, str]])
    source: str = ""
    assuming: bool = False
    assumed: bool = False
    same: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    equal: dict[Atom, Ix] = field(default_factory=dict[Atom, Ix])
    found_equal: dict[Atom, Ix] = field(default_factory=dict[Atom, Ix])

    def make(self, shape: Sequence[IxLike], dtype: str, definition: Definition) -> Tensor:
        if any(len(s.key) > SIZE_TEXT_LIMIT for s in shape if isinstance(s, Ix)):
            raise Unsupported("a size depends on the inputs in too involved a way")
        return Tensor(tuple(ix(s) for s in shape), dtype, definition, self.source)

    def require_equal(self, left: IxLike, right: IxLike, why: str) -> None:
        a, b = ix(left), ix(right)
        if a == b:
            return
        if a.const is not None and b.const is not None:
            raise Unsupported(f"{why}: {a.const} is not {b.const}")
        self.requirements.append((a, b, why))
        found = equality(a, b)
        if found is not None:
            self.found_equal.setdefault(*found)

    def assume_equal(self, left: Ix, right: Ix, why: str, *, surely: bool = False) -> None:
        """What usually holds; where it does not, a call is left to code that was written without `assuming`. With
        `surely` such code is not asked for: hardly any call that fails here would do better there."""
        self.requirements.append((left, right, why))
        self.assumed = self.assumed or not surely

    # sources

    def stored(self, buffer: Buffer) -> Tensor:
        return self.make(buffer.shape, buffer.dtype, Stored(buffer))

    def const(self, value: float | int | bool, dtype: str, shape: Sequence[IxLike] = ()) -> Tensor:
        element = E.const(value, dtype)
        return self.make(shape, dtype, View(lambda _: element, None))

    def table(self, values: Sequence[float | int | bool], dtype: str, shape: Sequence[IxLike]) -> Tensor:
        """A small constant tensor, as selects over its flat index."""
        elements = [E.const(v, dtype) for v in values] or [E.const(0, dtype)]
        sizes = tuple(ix(s) for s in shape)

        def at(where: Index) -> Expr:
            place = flat(where, sizes)
            if place.const is not None:
                return elements[place.const]
            out = elements[-1]
            for i in range(len(elements) - 2, -1, -1):
                out = E.select(E.op("eq", E.index(place), E.const(i, "i64")), elements[i], out)
            return out

        return self.make(sizes, dtype, View(at, None))

    def vector_of(self, values: Sequence[IxLike], dtype: str = "i64") -> Tensor:
        """A rank-1 integer tensor whose elements are size expressions (what Shape gives)."""
        elements = [_size_element(ix(v), dtype) for v in values] or [E.const(0, dtype)]

        def at(where: Index) -> Expr:
            if where[0].const is not None:
                return elements[where[0].const]
            out = elements[-1]
            for i in range(len(elements) - 2, -1, -1):
                out = E.select(E.op("eq", E.index(where[0]), E.const(i, "i64")), elements[i], out)
            return out

        return self.make((len(values),), dtype, View(at, None))

    def iota(self, shape: Sequence[IxLike], axis: int, dtype: str = "i64") -> Tensor:
        return self.index_map(shape, dtype, lambda w: E.cast(E.index(w[axis]), dtype))

    def index_map(self, shape: Sequence[IxLike], dtype: str, at: Callable[[Index], Expr]) -> Tensor:
        return self.make(shape, dtype, View(at, None))

    # element-wise

    @overload
    def map(self, body: Callable[[Expr], Expr], a: Tensor, /, *, dtype: str | None = None) -> Tensor: ...

    @overload
    def map(
        self, body: Callable[[Expr, Expr], Expr], a: Tensor, b: Tensor, /, *, dtype: str | None = None
    ) -> Tensor: ...

    @overload
    def map(
        self, body: Callable[[Expr, Expr, Expr], Expr], a: Tensor, b: Tensor, c: Tensor, /, *, dtype: str | None = None
    ) -> Tensor: ...

    @overload
    def map(self, body: Callable[..., Expr], /, *args: Tensor, dtype: str | None = None) -> Tensor: ...

    def map(self, body: Callable[..., Expr], *args: Tensor, dtype: str | None = None) -> Tensor:
        shape = self.broadcast(*(a.shape for a in args))
        args = tuple(self._respelled(a, shape) for a in args)
        probe = body(*(E.ref(a, tuple(ix(0) for _ in a.shape)) for a in args))
        return self.make(shape, dtype or probe.dtype, Map(body, args))

    def _respelled(self, x: Tensor, whole: Index) -> Tensor:
        """Sizes that are those of the whole, only spelled differently, are spelled as there: they do not broadcast."""
        own = whole[len(whole) - x.rank :]
        shape = tuple(w if (s.key, w.key) in self.same else s for s, w in zip(x.shape, own, strict=True))
        return x if shape == x.shape else self.view(x, shape, lambda w: w)

    def copy(self, x: Tensor) -> Tensor:
        """The same elements in x's own order, for something to be stored."""
        return self.make(x.shape, x.dtype, Map(_same, (x,)))

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        if x.dtype == dtype:
            return x
        if isinstance(x.definition, View) and x.definition.src is None:
            at = x.definition.at
            return self.index_map(x.shape, dtype, lambda w: E.cast(at(w), dtype))
        return self.map(lambda e: E.cast(e, dtype), x)

    def computable(self, x: Tensor) -> Tensor:
        """The tensor in the type that it is computed in."""
        return self.cast(x, BY_NAME[x.dtype].compute)

    def broadcast(self, *shapes: Index) -> Index:
        rank = max((len(s) for s in shapes), default=0)
        out: list[Ix] = []
        for axis in range(rank):
            size = ix(1)
            for shape in shapes:
                k = axis - (rank - len(shape))
                if k >= 0:
                    size = self._broadcast_size(size, shape[k])
            out.append(size)
        return tuple(out)

    def _broadcast_size(self, a: Ix, b: Ix) -> Ix:
        if a == b or b.const == 1:
            return a
        if a.const == 1:
            return b
        if a.const is not None and b.const is not None:
            raise Unsupported(f"sizes {a.const} and {b.const} do not broadcast")
        if a.const is not None or b.const is not None:
            known, free = (a, b) if a.const is not None else (b, a)
            self.requirements.append((fn("sel", fn("ne1", free), free, known), known, "broadcast"))
            return known
        if _clamped(a, b) or _clamped(b, a):
            size = a if _clamped(b, a) else b
            self.require_equal(a, b, "broadcast")
            self.same |= {(a.key, b.key), (b.key, a.key)}
            return size
        if self.assuming and agree(a, b):
            self.assume_equal(a, b, "broadcast")
            self.same |= {(a.key, b.key), (b.key, a.key)}
            return a if len(a.key) <= len(b.key) else b
        if covers(a, b) or covers(b, a):
            return a if covers(a, b) else b  # it was checked where the larger was made
        size = broadcast_size(a, b)
        known = substitute(size, self.equal)
        if known != size:
            self.requirements.append((one_not_1(members_of(size)), known, "broadcast"))
        for part in (a, b):
            self.requirements.append((fn("sel", fn("ne1", part), part, known), known, "broadcast"))
        return known

    # index maps

    def view(self, x: Tensor, shape: Sequence[IxLike], to_source: Callable[[Index], Sequence[IxLike]]) -> Tensor:
        return self.make(shape, x.dtype, View(lambda w: x.at(tuple(to_source(w))), x))

    def expand(self, x: Tensor, shape: Sequence[IxLike]) -> Tensor:
        sizes = tuple(ix(s) for s in shape)
        x = self._respelled(x, sizes)
        if sizes == x.shape:
            return x
        return self.view(x, sizes, lambda w: aligned(w, x.shape, sizes))

    def transpose(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        if list(perm) == list(range(x.rank)):
            return x
        below = x.definition
        if isinstance(below, View) and below.perm is not None and below.src is not None:
            return self.transpose(below.src, [below.perm[p] for p in perm])
        return self._transposed(x, tuple(perm))

    def _transposed(self, x: Tensor, perm: tuple[int, ...]) -> Tensor:
        inverse = [perm.index(d) for d in range(x.rank)]
        view = View(lambda w: x.at(tuple(w[k] for k in inverse)), x, perm)
        return self.make([x.shape[p] for p in perm], x.dtype, view)

    def to_nhwc(self, x: Tensor) -> Tensor:
        """An image (N, C, *spatial) as (N, *spatial, C), which is how functions in C take it."""
        return self.transpose(x, (0, *range(2, x.rank), 1))

    def from_nhwc(self, x: Tensor) -> Tensor:
        """An image (N, *spatial, C) in the model's order."""
        return self.transpose(x, (0, x.rank - 1, *range(1, x.rank - 1)))

    def reshape(self, x: Tensor, shape: Sequence[IxLike]) -> Tensor:
        sizes = tuple(ix(s) for s in shape)
        if sizes == x.shape:
            return x
        if isinstance(x.definition, Stored):
            old = x.definition.buffer
            return self.make(sizes, x.dtype, Stored(_Alias(old, sizes)))
        source = regrouped(x)
        if source is not None and source.shape == sizes:
            return source
        groups = axis_groups(x.shape, sizes)
        return self.make(sizes, x.dtype, View(lambda w: x.at(regroup(w, groups, x.shape, sizes)), x, regrouped=True))

    def unreshaped(self, x: Tensor) -> Tensor:
        """The whole buffer that x is, in the shape that it is stored with: a weight is known there."""
        buffer = x.definition.buffer if isinstance(x.definition, Stored) else None
        return self.stored(buffer.base) if isinstance(buffer, _Alias) else x

    def unsqueeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        rank = x.rank + len(axes)
        where = {a % rank for a in axes}
        sizes = iter(x.shape)
        shape = [ix(1) if d in where else next(sizes) for d in range(rank)]
        return self.view(x, shape, lambda w: [i for d, i in enumerate(w) if d not in where])

    def squeeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        gone = {a % x.rank for a in axes}
        for axis in gone:
            self.require_equal(x.shape[axis], 1, "a squeezed dimension must be 1")
        shape = [s for d, s in enumerate(x.shape) if d not in gone]

        def back(w: Index) -> list[IxLike]:
            left = iter(w)
            return [0 if d in gone else next(left) for d in range(x.rank)]

        return self.view(x, shape, back)

    def slice(self, x: Tensor, starts: Sequence[IxLike], steps: Sequence[IxLike], sizes: Sequence[IxLike]) -> Tensor:
        return self.view(x, sizes, lambda w: [ix(s) + i * t for s, i, t in zip(starts, w, steps, strict=True)])

    def along_axes(self, x: Tensor, sizes: Sequence[IxLike], maps: Sequence[Callable[[Ix], Ix]]) -> Tensor:
        """Each axis by an index map of its own."""
        return self.view(x, sizes, lambda w: [of(i) for of, i in zip(maps, w, strict=True)])

    def tabulate(
        self, x: Tensor, shape: Sequence[IxLike], at: Callable[[Index], Expr], dtype: str | None = None
    ) -> Tensor:
        """What `at` reads from x, computed once for every index."""
        return self.copy(self.make(shape, dtype or x.dtype, View(at, x)))

    def data_index(self, e: Expr, extent: Ix, *, checked: bool = True) -> Ix:
        """An index read from data, negative ones counted from the end, checked at run time.

        What is computed from sizes alone, and clamped to the extent, need not be checked."""
        if isinstance(e.kind, E.Const) and extent.const is not None:
            value = int(e.kind.value)
            if not -extent.const <= value < extent.const:
                raise Unsupported(f"index {value} is out of range for an axis of size {extent.const}")
            return ix(value % extent.const)
        return of(Val(E.cast(e, "i64"), extent, checked))

    def gather(self, x: Tensor, indices: Tensor, axis: int) -> Tensor:
        shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
        stop = axis + indices.rank

        def back(w: Index) -> list[Ix]:
            return [*w[:axis], self.data_index(indices.at(w[axis:stop]), x.shape[axis]), *w[stop:]]

        return self.view(x, shape, back)

    # what the scheduler must place

    def reduce(self, kind: str, x: Tensor, axes: Sequence[int], *, dtype: str | None = None) -> Tensor:
        """Reduced axes stay as size 1; squeeze afterwards if they should go."""
        where = tuple(sorted({a % x.rank for a in axes})) if x.rank else ()
        where = tuple(a for a in where if x.shape[a].const != 1)
        if not where:
            if kind.startswith("arg"):
                return self.const(0, "i64", x.shape)
            return x
        shape = [ix(1) if d in where else s for d, s in enumerate(x.shape)]
        out = dtype or ("i64" if kind.startswith("arg") else x.dtype)
        return self.make(shape, out, Reduce(kind, x, where))

    def scan(self, kind: str, x: Tensor, axis: int, *, exclusive: bool = False, reverse: bool = False) -> Tensor:
        return self.make(x.shape, x.dtype, Scan(kind, x, axis, exclusive, reverse))

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        if len(parts) == 1:
            return parts[0]
        offset, pieces = ix(0), list[tuple[Index, Tensor]]()
        for part in parts:
            for d in range(part.rank):
                if d != axis:
                    self.require_equal(part.shape[d], parts[0].shape[d], "concatenated tensors must agree off the axis")
            pieces.append((tuple(offset if d == axis else ix(0) for d in range(part.rank)), part))
            offset = offset + part.shape[axis]
        shape = [offset if d == axis else s for d, s in enumerate(parts[0].shape)]
        return self.make(shape, parts[0].dtype, Assemble(tuple(pieces), None))

    def pad(self, x: Tensor, before: Sequence[IxLike], after: Sequence[IxLike], value: float | int | bool) -> Tensor:
        shape = [ix(b) + s + ix(a) for b, s, a in zip(before, x.shape, after, strict=True)]
        piece = (tuple(ix(b) for b in before), x)
        return self.make(shape, x.dtype, Assemble((piece,), value))

    def pack(self, x: Tensor, layout: str) -> Tensor | None:
        """A weight in another layout, made once for many calls. None: here tensors have none but their own."""
        del x, layout
        return None

    def contraction(self, a: Tensor, b: Tensor, *, zero_padded: bool = False) -> Tensor:
        """A matrix product, leading axes broadcast."""
        self.require_equal(a.shape[-1], b.shape[-2], "the inner sizes of a product must agree")
        batch = self.broadcast(a.shape[:-2], b.shape[:-2])
        a, b = (self._respelled(x, (*batch, *x.shape[-2:])) for x in (a, b))
        return self.make((*batch, a.shape[-2], b.shape[-1]), a.dtype, Contraction(a, b, a.dtype, zero_padded))

    def convolution(
        self, x: Tensor, weights: Tensor, geometry: Geometry, groups: int = 1, bias: Tensor | None = None
    ) -> Tensor:
        """A convolution, transposed or not, plus one number for each channel of the result."""
        channels = weights.shape[1] * groups if geometry.spread else weights.shape[0]
        definition = Convolution(x, weights, geometry, groups, x.dtype)
        made = self.make((x.shape[0], channels, *geometry.out), x.dtype, definition)
        return made if bias is None else self.add_to_channels(made, bias)

    def add_to_channels(self, x: Tensor, bias: Tensor) -> Tensor:
        return self.map(_sum, x, self.unsqueeze(bias, range(1, x.rank - 1)))

    def pool(self, kind: str, x: Tensor, geometry: Geometry, *, counted: bool = False) -> Tensor:
        """max, mean or sum of what the windows see."""
        return self.make((*x.shape[:2], *geometry.out), x.dtype, Pool(kind, x, geometry, x.dtype, counted))

    def resample(self, x: Tensor, taps: Sequence[Taps]) -> Tensor:
        """Weighted sums along some axes, one axis after the other."""
        for one in taps:
            x = self.tabulate(x, *weighted(x, [one]))
        return x

    def function(self, call: Function) -> tuple[Tensor, ...]:
        """The results of a function written in C; those that nobody reads are not stored."""
        return tuple(self.make(shape, dtype, Result(call, place)) for place, (shape, dtype) in enumerate(call.results))

    # symbolic contents

    def values(self, x: Tensor) -> tuple[Ix, ...] | None:
        """The elements of a small integer tensor as size expressions, or None when they cannot be told."""
        return contents(x)


def _size_element(value: Ix, dtype: str) -> Expr:
    if dtype == "b" and value.const is None:
        return E.op("ne", E.index(value), E.const(0, "i64"))
    return E.index(value, dtype) if dtype in ("b", "i32", "i64") else E.cast(E.index(value), dtype)


def _same(element: Expr) -> Expr:
    return element


def _sum(a: Expr, b: Expr) -> Expr:
    return E.op("add", a, b)


class _Alias(Buffer):
    """A buffer seen with another shape: the same memory, so the same identity."""

    def __init__(self, base: Buffer, shape: Index) -> None:
        super().__init__(base.name, base.dtype, shape, base.uid, base.contents)
        self.base: Buffer = base.base if isinstance(base, _Alias) else base


def _clamped(value: Ix, size: Ix) -> bool:
    """value is min(size, c) with c of 2 or more: it is 1 only where size is, so the two broadcast only when equal."""
    if len(value.terms) != 1 or value.terms[0][1] != 1 or len(value.terms[0][0]) != 1:
        return False
    atom = value.terms[0][0][0]
    if not isinstance(atom, Fn) or atom.op != "min" or size not in atom.args:
        return False
    return all(a == size or (a.const is not None and a.const >= 2) for a in atom.args)
