"""The tensor language in which ops state their meaning.

Input: region inputs and constants. Output: `Tensor` graphs made of a few primitives: stored buffers, element-wise
maps, index maps (views), reductions, scans, assemblies of pieces, matrix products. Invariant: a tensor's shape is a
tuple of `Ix`; data movement is an index map and never a copy until the scheduler decides to store something.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Union, overload

from . import expr as E
from .expr import Expr
from .index import Fn, Ix, IxLike, Refusal, Sym, Val, Var, agree, exact_div, fn, ix, of, product

Index = tuple[Ix, ...]
SIZE_TEXT_LIMIT = 3000
_uids = itertools.count()


@dataclass(eq=False)
class Buffer:
    """Contiguous memory: an input, an output or a temporary of the region. Small constants carry their contents."""

    name: str
    dtype: str
    shape: Index
    uid: int = field(default_factory=lambda: next(_uids))
    contents: tuple[float | int | bool, ...] | None = None

    @property
    def elements(self) -> Ix:
        return product(self.shape)


@dataclass(frozen=True, eq=False)
class Stored:
    buffer: Buffer


@dataclass(frozen=True, eq=False)
class Map:
    """Element-wise: fn over the operands' elements, operands broadcast to the result's shape."""

    fn: Callable[..., Expr]
    args: tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class View:
    """Another tensor's elements at mapped indices; or pure index arithmetic when `src` is None."""

    at: Callable[[Index], Expr]
    src: Tensor | None


@dataclass(frozen=True, eq=False)
class Reduce:
    """sum, prod, min, max, or argmax/argmin (`_last` for the last of equals) over axes; dims are kept as 1."""

    kind: str
    src: Tensor
    axes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Scan:
    """Running sum or product along an axis."""

    kind: str
    src: Tensor
    axis: int
    exclusive: bool
    reverse: bool


@dataclass(frozen=True, eq=False)
class Assemble:
    """Pieces placed at offsets of a buffer; elsewhere `fill`."""

    pieces: tuple[tuple[Index, Tensor], ...]
    fill: float | int | bool | None


@dataclass(frozen=True, eq=False)
class MatMul:
    """a[..., M, K] @ b, with b packed in panels of 16 columns ahead of time (`b` is a stored buffer of panels)."""

    a: Tensor
    b: Tensor
    columns: Ix


Definition = Union[Stored, Map, View, Reduce, Scan, Assemble, MatMul]


@dataclass(eq=False)
class Tensor:
    shape: Index
    dtype: str
    definition: Definition
    source: str = ""
    uid: int = field(default_factory=lambda: next(_uids))
    _expanded: dict[tuple[str, ...], Expr] = field(default_factory=dict[tuple[str, ...], Expr], repr=False)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> Ix:
        return product(self.shape)

    def at(self, index: Sequence[IxLike]) -> Expr:
        """The element at an index: transparent through storage and views, a reference for what is computed."""
        where = tuple(ix(i) for i in index)
        definition = self.definition
        if isinstance(definition, Stored):
            return E.load(definition.buffer, flat(where, self.shape))
        if isinstance(definition, View):
            return self._memo(where, definition.at)
        return E.ref(self, where)

    def expand(self, index: Sequence[IxLike]) -> Expr:
        """A map's element in terms of its operands' elements."""
        assert isinstance(self.definition, Map)
        args, body = self.definition.args, self.definition.fn
        where = tuple(ix(i) for i in index)
        return self._memo(where, lambda w: body(*(a.at(aligned(w, a.shape)) for a in args)))

    def _memo(self, where: Index, compute: Callable[[Index], Expr]) -> Expr:
        key = tuple(i.key for i in where)
        found = self._expanded.get(key)
        if found is None:
            found = self._expanded[key] = compute(where)
        return found


def strides(shape: Sequence[IxLike]) -> list[Ix]:
    out: list[Ix] = []
    step = ix(1)
    for size in reversed(shape):
        out.append(step)
        step = step * size
    return out[::-1]


def flat(index: Sequence[Ix], shape: Sequence[Ix]) -> Ix:
    total = ix(0)
    for i, step in zip(index, strides(shape), strict=True):
        total = total + i * step
    return total


def aligned(index: Index, shape: Index) -> Index:
    """The index of a broadcast operand: trailing axes; size-1 axes are read at 0."""
    tail = index[len(index) - len(shape) :]
    return tuple(_broadcast_index(i, size) for i, size in zip(tail, shape, strict=True))


def _broadcast_index(i: Ix, size: Ix) -> Ix:
    if size.const == 1:
        return ix(0)
    extent = _extent(i)
    if size.const is not None or extent is None or extent == size or not _may_broadcast(extent, size):
        return i
    return i * fn("ne1", size)


def _extent(i: Ix) -> Ix | None:
    """The extent of a bare loop variable."""
    if len(i.terms) == 1 and i.terms[0][1] == 1 and len(i.terms[0][0]) == 1:
        atom = i.terms[0][0][0]
        if isinstance(atom, Var):
            return atom.extent
    return None


def _may_broadcast(extent: Ix, size: Ix) -> bool:
    """An extent made by `broadcast` from `size` and another size it may differ from."""
    if extent.const is not None:
        return True
    return any(isinstance(a, Fn) and a.op == "sel" for a in extent.atoms) and size.key in extent.key


@dataclass
class Builder:
    """Makes tensors and collects what must hold at run time. One per region (or per shape analysis)."""

    requirements: list[tuple[Ix, Ix, str]] = field(default_factory=list[tuple[Ix, Ix, str]])
    source: str = ""

    def make(self, shape: Sequence[IxLike], dtype: str, definition: Definition) -> Tensor:
        if any(len(s.key) > SIZE_TEXT_LIMIT for s in shape if isinstance(s, Ix)):
            raise Refusal("a size depends on the inputs in too involved a way")
        return Tensor(tuple(ix(s) for s in shape), dtype, definition, self.source)

    def require_equal(self, left: IxLike, right: IxLike, why: str) -> None:
        a, b = ix(left), ix(right)
        if a == b:
            return
        if a.const is not None and b.const is not None:
            raise Refusal(f"{why}: {a.const} is not {b.const}")
        self.requirements.append((a, b, why))

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
        probe = body(*(E.ref(a, tuple(ix(0) for _ in a.shape)) for a in args))
        return self.make(shape, dtype or probe.dtype, Map(body, args))

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        if x.dtype == dtype:
            return x
        if isinstance(x.definition, View) and x.definition.src is None:
            at = x.definition.at
            return self.index_map(x.shape, dtype, lambda w: E.cast(at(w), dtype))
        return self.map(lambda e: E.cast(e, dtype), x)

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
            raise Refusal(f"sizes {a.const} and {b.const} do not broadcast")
        if a.const is not None or b.const is not None:
            known, free = (a, b) if a.const is not None else (b, a)
            self.requirements.append((fn("sel", fn("ne1", free), free, known), known, "broadcast"))
            return known
        if _clamped(a, b) or _clamped(b, a):
            size = a if _clamped(b, a) else b
            self.require_equal(a, b, "broadcast")
            return size
        if agree(a, b):
            self.require_equal(a, b, "broadcast")
            return a if len(a.key) <= len(b.key) else b
        size = fn("sel", fn("eq", a, 1), b, a)
        self.requirements.append((fn("sel", fn("ne1", b), b, size), size, "broadcast"))
        return size

    # index maps

    def view(self, x: Tensor, shape: Sequence[IxLike], to_source: Callable[[Index], Sequence[IxLike]]) -> Tensor:
        return self.make(shape, x.dtype, View(lambda w: x.at(tuple(to_source(w))), x))

    def expand(self, x: Tensor, shape: Sequence[IxLike]) -> Tensor:
        sizes = tuple(ix(s) for s in shape)
        if sizes == x.shape:
            return x
        return self.view(x, sizes, lambda w: aligned(w, x.shape))

    def transpose(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        if list(perm) == list(range(x.rank)):
            return x
        inverse = [list(perm).index(d) for d in range(x.rank)]
        return self.view(x, [x.shape[p] for p in perm], lambda w: [w[k] for k in inverse])

    def reshape(self, x: Tensor, shape: Sequence[IxLike]) -> Tensor:
        sizes = tuple(ix(s) for s in shape)
        if sizes == x.shape:
            return x
        if isinstance(x.definition, Stored):
            old = x.definition.buffer
            return self.make(sizes, x.dtype, Stored(_Alias(old, sizes)))
        groups = _groups(x.shape, sizes)
        return self.view(x, sizes, lambda w: _regroup(w, groups, x.shape, sizes))

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

    def data_index(self, e: Expr, extent: Ix) -> Ix:
        """An index read from data, negative ones counted from the end, checked at run time."""
        if isinstance(e.kind, E.Const) and extent.const is not None:
            value = int(e.kind.value)
            if not -extent.const <= value < extent.const:
                raise Refusal(f"index {value} is out of range for an axis of size {extent.const}")
            return ix(value % extent.const)
        return of(Val(E.cast(e, "i64"), extent))

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

    def matmul_packed(self, a: Tensor, b: Tensor, columns: IxLike) -> Tensor:
        return self.make((*a.shape[:-1], ix(columns)), a.dtype, MatMul(a, b, ix(columns)))

    # symbolic contents

    def values(self, x: Tensor) -> tuple[Ix, ...] | None:
        """The elements of a small integer tensor as size expressions, or None when they cannot be told."""
        count = x.elements.const
        if count is None or count > 256 or x.dtype not in (*E.INTS, "b"):
            return None
        out: list[Ix] = []
        for k in range(count):
            value = self._value(x.at(_unflat(ix(k), x.shape)), 0)
            if value is None:
                return None
            out.append(value)
        return tuple(out)

    def _value(self, e: Expr, depth: int) -> Ix | None:
        kind = e.kind
        if depth > 60 or e.dtype not in (*E.INTS, "b"):
            return None
        if isinstance(kind, E.Const):
            return ix(int(kind.value))
        if isinstance(kind, E.Index):
            return kind.ix
        if isinstance(kind, E.Load):
            return self._loaded(kind)
        if isinstance(kind, E.Ref):
            return self._ref_value(kind.tensor, kind.index, depth)
        args = [self._value(a, depth + 1) for a in kind.args]
        return _combine(kind.name, e.dtype, args)

    def _loaded(self, load: E.Load) -> Ix | None:
        if load.offset.const is None or load.buffer.dtype not in ("i32", "i64"):
            return None
        return of(Sym(f"{load.buffer.name}[{load.offset.const}]", nonneg=False))

    def _ref_value(self, tensor: Tensor, where: Index, depth: int) -> Ix | None:
        definition = tensor.definition
        if isinstance(definition, Map):
            return self._value(tensor.expand(where), depth + 1)
        if isinstance(definition, Assemble):
            return self._piece_value(definition, where, depth)
        if isinstance(definition, Reduce) and definition.kind in ("sum", "prod", "min", "max"):
            return self._reduced_value(definition, where, depth)
        return None

    def _piece_value(self, assembly: Assemble, where: Index, depth: int) -> Ix | None:
        for offset, piece in assembly.pieces:
            inner = [w - o for w, o in zip(where, offset, strict=True)]
            if any(i.const is None or s.const is None for i, s in zip(inner, piece.shape, strict=True)):
                return None
            if all(0 <= (i.const or 0) < (s.const or 0) for i, s in zip(inner, piece.shape, strict=True)):
                return self._value(piece.at(inner), depth + 1)
        return ix(int(assembly.fill)) if assembly.fill is not None else None

    def _reduced_value(self, reduce: Reduce, where: Index, depth: int) -> Ix | None:
        sizes = [reduce.src.shape[a].const for a in reduce.axes]
        if any(s is None or s == 0 or s > 64 for s in sizes):
            return None
        total: Ix | None = None
        for combo in itertools.product(*(range(s or 0) for s in sizes)):
            place = list(where)
            for axis, k in zip(reduce.axes, combo, strict=True):
                place[axis] = ix(k)
            value = self._value(reduce.src.at(place), depth + 1)
            if value is None:
                return None
            total = value if total is None else _combine(_REDUCE_OP[reduce.kind], reduce.src.dtype, [total, value])
            if total is None:
                return None
        return total


def _size_element(value: Ix, dtype: str) -> Expr:
    if dtype == "b" and value.const is None:
        return E.op("ne", E.index(value), E.const(0, "i64"))
    return E.index(value, dtype) if dtype in ("b", "i32", "i64") else E.cast(E.index(value), dtype)


_REDUCE_OP = {"sum": "add", "prod": "mul", "min": "min", "max": "max"}


class _Alias(Buffer):
    """A buffer seen with another shape: the same memory, so the same identity."""

    def __init__(self, base: Buffer, shape: Index) -> None:
        super().__init__(base.name, base.dtype, shape, base.uid, base.contents)


def _combine(name: str, dtype: str, args: Sequence[Ix | None]) -> Ix | None:
    """Integer arithmetic of shape computations, in ONNX's meaning; None where the type would wrap."""
    value = _combined(name, dtype, args)
    if value is None or value.const is None or dtype == "b":
        return value
    bits = 8 * E.SIZE_BYTES[dtype]
    low, high = (0, 2**bits) if dtype in E.UNSIGNED else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    return value if low <= value.const < high else None


def _combined(name: str, dtype: str, args: Sequence[Ix | None]) -> Ix | None:
    known = [a for a in args if a is not None]
    if len(known) != len(args):
        return None
    if name == "cvt":
        if dtype == "b":
            return 1 - fn("eq", known[0], 0)
        return known[0] if dtype in ("i32", "i64") else None
    if name == "abs":
        return fn("max", known[0], -known[0])
    if name == "neg":
        return -known[0]
    if name == "sel":
        return fn("sel", *known)
    if name == "not":
        return 1 - known[0]
    if len(known) != 2:
        return None
    a, b = known
    simple: dict[str, Callable[[], Ix]] = {
        "add": lambda: a + b,
        "sub": lambda: a - b,
        "mul": lambda: a * b,
        "mod": lambda: a % b,
        "min": lambda: fn("min", a, b),
        "max": lambda: fn("max", a, b),
        "eq": lambda: fn("eq", a, b) if a != b else ix(1),
        "ne": lambda: 1 - fn("eq", a, b) if a != b else ix(0),
        "lt": lambda: fn("lt", a, b),
        "gt": lambda: fn("lt", b, a),
        "le": lambda: 1 - fn("lt", b, a),
        "ge": lambda: 1 - fn("lt", a, b),
        "and": lambda: a * b,
        "or": lambda: fn("max", a, b),
    }
    if name == "div":
        whole = exact_div(a, b)
        if whole is not None:
            return whole
        return a // b if _never_negative(a) and _never_negative(b) else fn("truncdiv", a, b)
    return simple[name]() if name in simple else None


def _clamped(value: Ix, size: Ix) -> bool:
    """value is min(size, c) with c of 2 or more: it is 1 only where size is, so the two broadcast only when equal."""
    if len(value.terms) != 1 or value.terms[0][1] != 1 or len(value.terms[0][0]) != 1:
        return False
    atom = value.terms[0][0][0]
    if not isinstance(atom, Fn) or atom.op != "min" or size not in atom.args:
        return False
    return all(a == size or (a.const is not None and a.const >= 2) for a in atom.args)


def _never_negative(value: Ix) -> bool:
    from .index import nonneg

    return nonneg(value)


def _unflat(place: Ix, shape: Sequence[Ix]) -> Index:
    out: list[Ix] = []
    for size in reversed(shape):
        out.append(place % size)
        place = place // size
    return tuple(out[::-1])


Group = tuple[int, int, int, int]


def _groups(old: Index, new: Index) -> list[Group]:
    """Cut two shapes of the same element count into runs of axes with equal products, as fine as provable."""
    groups: list[Group] = []
    i = j = 0
    while i < len(old) or j < len(new):
        group = _next_group(old, new, i, j)
        groups.append(group)
        i, j = group[1], group[3]
    return groups


def _next_group(old: Index, new: Index, i: int, j: int) -> Group:
    left = right = ix(1)
    a, b = i, j
    while True:
        if a > i and b > j and left == right:
            return i, a, j, b
        grow_left = b >= len(new) or (a < len(old) and (a == i or _smaller(left, right)))
        if grow_left and a < len(old):
            left, a = left * old[a], a + 1
        elif b < len(new):
            right, b = right * new[b], b + 1
        else:
            return i, len(old), j, len(new)


def _smaller(left: Ix, right: Ix) -> bool:
    """Which side to grow: the one that divides the other."""
    if exact_div(right, left) is not None:
        return True
    return exact_div(left, right) is None and len(left.key) < len(right.key)


def _regroup(w: Index, groups: Sequence[Group], old: Index, new: Index) -> Index:
    out: list[Ix] = []
    for i, a, j, b in groups:
        if a - i == b - j == 1:
            out.append(w[j])
        else:
            out.extend(_unflat_ranged(flat(w[j:b], new[j:b]), old[i:a]))
    return tuple(out)


def _unflat_ranged(place: Ix, shape: Index) -> Index:
    """Like _unflat, but the leading axis needs no remainder."""
    out: list[Ix] = []
    for axis in range(len(shape) - 1, 0, -1):
        out.append(place % shape[axis])
        place = place // shape[axis]
    return (place, *out[::-1]) if shape else ()
