"""The tensor language that ops are lowered to.

Input: region inputs and constants. Output: `Tensor` graphs made of a few primitives: stored buffers, element-wise
maps, index maps (views), reductions, scans, assemblies of pieces, matrix products, and results of functions written in
C. Invariant: a tensor's shape is a
tuple of `Ix`; data movement is an index map and never a copy until the scheduler decides to store something.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import expr as E
from .computed import computed
from .device import DeviceCode
from .expr import Expr
from .index import Ix, IxLike, Sym, fn, ix, product
from .layout import Index, flat
from .window import Geometry

_uids = itertools.count()


@dataclass(eq=False)
class Buffer:
    """Contiguous memory: an input, an output or a temporary of the region. Small constants carry their contents.

    `weight` is the constant, or the weight of the model, that it holds: the same for many calls."""

    name: str
    dtype: str
    shape: Index
    uid: int = field(default_factory=lambda: next(_uids))
    contents: tuple[float | int | bool, ...] | None = None
    weight: object = None

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
    """Another tensor's elements at mapped indices; or pure index arithmetic when `src` is None.

    `perm` says that it is a transpose; `regrouped` that its elements are the source's, in the same order."""

    at: Callable[[Index], Expr]
    src: Tensor | None
    perm: tuple[int, ...] | None = None
    regrouped: bool = False


@dataclass(frozen=True, eq=False)
class Reduce:
    """sum, prod, min, max, or argmax/argmin (`_last` for the last of equals) over axes; dims are kept as 1.

    `top` is max where a NaN among the elements need not be seen, because it spoils what is computed next anyway."""

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
class Contraction:
    """a[..., M, K] @ b[..., K, N], summed in the type `accumulator`; leading axes broadcast.

    `zero_padded`: one of two products of an attention whose mask hides nothing of b but zero padding, for all rows
    together."""

    a: Tensor
    b: Tensor
    accumulator: str
    zero_padded: bool = False


@dataclass(frozen=True, eq=False)
class Convolution:
    """Filters b over an image a[N, C, *sizes] with zeros around it, summed in the type `accumulator`: [N, M, *out].

    b[M, C / groups, *kernel], or b[C, M / groups, *kernel] where the geometry is that of a transposed convolution."""

    a: Tensor
    b: Tensor
    geometry: Geometry
    groups: int
    accumulator: str


@dataclass(frozen=True, eq=False)
class Pool:
    """max, mean or sum of what a window sees of each channel of an image a[N, C, *sizes]: [N, C, *out].

    `counted` is true for a mean over padding too."""

    kind: str
    a: Tensor
    geometry: Geometry
    accumulator: str
    counted: bool = False


Arrays = Sequence["np.ndarray[Any, Any] | None"]


@dataclass(frozen=True, eq=False)
class Function:
    """A function written in C over whole tensors (an extern call): what no loop nest states, such as a recurrence.

    `text` is the C of the unit that defines `int32_t SMELT_NAME(name)(smelt_task *)`, the same for every model. The
    task has in `b` the operands, the results, then `scratch_bytes` of memory; an absent operand or result is NULL. In
    `s` are the `numbers`, in `f` the `factors`. `reference` computes the results with numpy, from arrays and numbers.

    `found` are sizes of results that only the data tell, each with the most that it can be. Results lie in memory that
    is large enough for the most; behind the scratch memory `b` has an `int64_t` for each size, which the function sets.
    `links` are units of the C backend's library that the text calls, by name. `device` is what computes the same on a
    GPU, where its author wrote that.
    """

    name: str
    text: str
    operands: tuple[Tensor | None, ...]
    results: tuple[tuple[Index, str], ...]
    numbers: tuple[Ix, ...]
    factors: tuple[float, ...]
    scratch_bytes: Ix
    flops: Ix
    reference: Callable[[Arrays, Sequence[int], Sequence[float]], Sequence[np.ndarray[Any, Any]]]
    found: tuple[tuple[Sym, Ix], ...] = ()
    links: tuple[str, ...] = ()
    device: DeviceCode | None = None


@dataclass(frozen=True, eq=False)
class Result:
    """One result of a function, which runs once for all of them."""

    function: Function
    place: int


@dataclass(frozen=True, eq=False)
class Lowered:
    """What a backend puts in the place of one of these: a computation over operands of a layout that it chose."""


Definition = Contraction | Stored | Map | View | Reduce | Scan | Assemble | Convolution | Pool | Result | Lowered


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

    @computed
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
        return self._memo(where, lambda w: body(*(a.at(aligned(w, a.shape, self.shape)) for a in args)))

    def forget(self) -> None:
        """Elements that were stated before what they read was given another definition."""
        self._expanded.clear()

    def _memo(self, where: Index, compute: Callable[[Index], Expr]) -> Expr:
        key = tuple(i.key for i in where)
        found = self._expanded.get(key)
        if found is None:
            found = self._expanded[key] = compute(where)
        return found


def regrouped(x: Tensor) -> Tensor | None:
    """The tensor whose elements x has, in the same order, with other axes."""
    definition = x.definition
    return definition.src if isinstance(definition, View) and definition.regrouped else None


def aligned(index: Index, shape: Index, whole: Sequence[Ix]) -> Index:
    """The index of an operand that is broadcast to the shape `whole`: trailing axes; size-1 axes are read at 0."""
    skip = len(index) - len(shape)
    return tuple(_broadcast_index(*each) for each in zip(index[skip:], shape, whole[skip:], strict=True))


def _broadcast_index(i: Ix, size: Ix, whole: Ix) -> Ix:
    """A size that is not that of the whole may be 1 at run time, however the index came to be."""
    if size.const == 1:
        return ix(0)
    return i if size == whole or size.const is not None else i * fn("ne1", size)
