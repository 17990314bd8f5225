"""The tensor language in which ops state their meaning.

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
from .expr import Expr
from .index import Ix, IxLike, Sym, fn, ix, product
from .layout import Index, flat
from .window import Geometry

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
    """Another tensor's elements at mapped indices; or pure index arithmetic when `src` is None.

    `perm` says that it is a transpose, `native` that its source is an NHWC image: element-wise
    tensors over it are made in the source's order (nhwc.py); `regrouped` that its elements are the source's,
    in the same order."""

    at: Callable[[Index], Expr]
    src: Tensor | None
    perm: tuple[int, ...] | None = None
    native: bool = False
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
class MatMul:
    """a[..., M, K] @ b, with b packed in panels of 16 columns ahead of time (`b` is a stored buffer of panels)."""

    a: Tensor
    b: Tensor
    columns: Ix


@dataclass(frozen=True, eq=False)
class Product:
    """a[..., M, K] @ b[..., K, N], both known only at run time; leading axes broadcast.

    `zero_padded`: one of two products of an attention whose mask hides nothing of b but zero padding, for all rows
    together."""

    a: Tensor
    b: Tensor
    zero_padded: bool = False


@dataclass(frozen=True, eq=False)
class Window:
    """What slides over an image a[N, *sizes, C], channels last, and gives [N, *out, columns].

    dense: products of windows with panels [group, panel, tap * channel, 16]; winograd: the same for 3 x 3 taps, with
    transformed panels [24, panel, channel, 16]; dots: the same for few columns, [group, panel of a line's elements,
    column, 16]; narrow: the same for groups of 2, 4 or 8 channels and columns, [panel, tap * channel, 16]; depthwise:
    the same with one filter for each channel, panels [panel, tap, 16]; max, mean, sum: pools. `counted` is true for a
    mean over padding too. A `nchw` image lies as the model states it, a[N, C, *sizes], and its panels have channels
    before taps."""

    kind: str
    a: Tensor
    b: Tensor | None
    geometry: Geometry
    groups: int = 1
    counted: bool = False
    nchw: bool = False


Arrays = Sequence["np.ndarray[Any, Any] | None"]


@dataclass(frozen=True, eq=False)
class Function:
    """A function written in C over whole tensors (an extern call): what no loop nest states, such as a recurrence.

    `text` is the C of the unit that defines `int32_t SMELT_NAME(name)(smelt_task *)`, the same for every model. The
    task has in `b` the operands, the results, then `scratch_bytes` of memory; an absent operand or result is NULL. In
    `s` are the `numbers`, in `f` the `factors`. `reference` computes the results with numpy, from arrays and numbers.

    `found` are sizes of results that only the data tell, each with the most that it can be. Results lie in memory that
    is large enough for the most; behind the scratch memory `b` has an `int64_t` for each size, which the function sets.
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


@dataclass(frozen=True, eq=False)
class Result:
    """One result of a function, which runs once for all of them."""

    function: Function
    place: int


Definition = Product | Stored | Map | View | Reduce | Scan | Assemble | MatMul | Window | Result


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

    def _memo(self, where: Index, compute: Callable[[Index], Expr]) -> Expr:
        key = tuple(i.key for i in where)
        found = self._expanded.get(key)
        if found is None:
            found = self._expanded[key] = compute(where)
        return found


def aligned(index: Index, shape: Index, whole: Sequence[Ix]) -> Index:
    """The index of an operand that is broadcast to the shape `whole`: trailing axes; size-1 axes are read at 0."""
    skip = len(index) - len(shape)
    return tuple(_broadcast_index(*each) for each in zip(index[skip:], shape, whole[skip:], strict=True))


def _broadcast_index(i: Ix, size: Ix, whole: Ix) -> Ix:
    """A size that is not that of the whole may be 1 at run time, however the index came to be."""
    if size.const == 1:
        return ix(0)
    return i if size == whole or size.const is not None else i * fn("ne1", size)
