"""What scheduling makes: clusters of tensors that are computed in one loop nest.

Input: nothing. Output: records. Invariant: every store and reduction of a finished cluster is stated over loads,
indices and the cluster's own reductions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from smelt.ir.kernel import Buffer, Expr, Function, Ix, Tensor, Var, ix, product

Index = tuple[Ix, ...]


@dataclass
class Store:
    """One tensor's element written to a buffer: in the cluster's loops, at `offset`."""

    buffer: Buffer
    offset: Ix
    value: Expr


@dataclass
class Reduction:
    """A member that is accumulated over the inner loops. `position` is the index along the axis, for arg kinds."""

    tensor: Tensor
    kind: str
    value: Expr
    position: Expr | None = None


@dataclass
class Operand:
    """A matrix in memory: its element is at `offset`, which is affine in the product's variables."""

    buffer: Buffer
    offset: Ix


@dataclass(frozen=True)
class Matrix:
    """A matrix in memory without loop variables: element (i, j) is at `start + i * down + j * across`."""

    buffer: Buffer
    start: Ix
    down: Ix
    across: Ix


@dataclass
class Pack:
    """A run-time right operand to be packed in panels of 16 columns, for every index of its batch.

    `rows` of the product that reads it where a GEMV reads the operand unpacked; None where panels are needed.
    `watched`: that it holds NaN, infinities or large values is noted.
    """

    source: Operand
    batch: list[Var]
    depth: Var
    column: Var
    target: Buffer
    rows: Ix | None = None
    watched: bool = False


@dataclass
class Segment:
    """Some rows of an assembled operand, `extent` of them from `start` of the axis `along` on, which counts from there.

    They go to offset `there` of the whole. With a `source` they may be read there instead; `home` is the cluster that
    copies them otherwise."""

    source: Operand | None
    there: Ix
    along: Var
    start: Ix
    extent: Ix
    home: Cluster | None


@dataclass
class Extern:
    """A call of a function: where its operands, its results and its scratch memory lie; None where one is absent.

    `found` holds the sizes that it finds."""

    function: Function
    operands: list[Buffer | None]
    results: list[Buffer | None]
    scratch: Buffer | None
    found: Buffer | None = None

    @property
    def arguments(self) -> tuple[Buffer | None, ...]:
        return (*self.operands, *self.results, self.scratch, self.found)


@dataclass(eq=False)
class Cluster:
    """Tensors computed in one loop nest. `reduced` variables are the inner loops that reductions run over.

    A product with a `producer` runs in the task of that product (back-to-back GEMM fusion): what the producer has
    `kept` in its block is the left operand. `unpacked` is the right operand as it lies, where the product may read it
    so. `siblings` are further products of the operand that `matmul` has, over the same loops. `matrices` are both
    operands of a product that reads the right one unpacked, for all rows alike. `segments` are those of a KV
    cache that is the right operand, for a few rows; a cluster that copies one of them does so `unless_gemv` rows are
    read. `group` batch indices in a row read the same. One with an `extern` is a call of a function and has no members.
    """

    order: int
    vars: list[Var]
    reduced: list[Var] = field(default_factory=list[Var])
    members: dict[Tensor, Index] = field(default_factory=dict[Tensor, Index])
    pieces: list[tuple[Tensor, Index, Buffer, Index]] = field(default_factory=list[tuple[Tensor, Index, Buffer, Index]])
    matmul: Tensor | None = None
    siblings: list[Tensor] = field(default_factory=list[Tensor])
    lhs: Operand | None = None
    rhs: Operand | None = None
    unpacked: Operand | None = None
    depth: Var | None = None
    matrices: tuple[Matrix, Matrix] | None = None
    segments: list[Segment] = field(default_factory=list[Segment])
    unless_gemv: Ix | None = None
    group: Ix = field(default_factory=lambda: ix(1))
    panels: Buffer | None = None
    pack: Pack | None = None
    producer: Cluster | None = None
    kept: tuple[Tensor, Buffer] | None = None
    scan: Tensor | None = None
    fill: tuple[Buffer, float | int | bool] | None = None
    extern: Extern | None = None
    stores: list[Store] = field(default_factory=list[Store])
    reductions: dict[Tensor, Reduction] = field(default_factory=dict[Tensor, Reduction])
    bound: dict[Tensor, dict[Var, Ix]] = field(default_factory=dict[Tensor, dict[Var, Ix]])
    sources: list[str] = field(default_factory=list[str])

    @property
    def products(self) -> tuple[Tensor, ...]:
        return () if self.matmul is None else (self.matmul, *self.siblings)

    @property
    def space(self) -> Ix:
        return product(v.extent for v in self.vars)


@dataclass
class Schedule:
    clusters: list[Cluster]
    temporaries: dict[Tensor, Buffer]
