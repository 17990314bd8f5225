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


@dataclass(frozen=True)
class Loops:
    """Maps and reductions: the loops are all that there is."""


@dataclass(frozen=True)
class RunningTotal:
    """A scan along the one inner loop."""

    made: Tensor


@dataclass(frozen=True)
class Fill:
    """One value in every element of a buffer, before pieces are put there."""

    buffer: Buffer
    value: float | int | bool


@dataclass(frozen=True)
class SegmentCopy:
    """Loops that copy a KV-cache segment, unless the product that reads it has few enough `rows` for a GEMV: that one
    copies what it reads."""

    rows: Ix


@dataclass
class PackedGemm:
    """A product with a weight that was packed ahead of time, which all rows share.

    `left` is a matrix in memory, or the producer whose rows are read in its own task (back-to-back GEMM fusion).
    `siblings` are further products of the same left operand, over the same loops. `kept`: what a consumer reads of it.
    """

    made: Tensor
    left: Operand | Cluster
    siblings: list[Tensor] = field(default_factory=list[Tensor])
    kept: tuple[Tensor, Buffer] | None = None


@dataclass
class BatchedGemm:
    """A product of operands that come at run time, one for each batch index. `right` are panels that a `Pack` has made.

    `left` and `kept` are as those of `PackedGemm`. `unpacked` is the right operand as it lies, where a GEMV may read it
    so; `segments` are those of a KV cache in its place. `group` batch indices in a row read the same right operand.
    """

    made: Tensor
    left: Operand | Cluster
    right: Operand
    depth: Var
    unpacked: Operand | None = None
    segments: list[Segment] = field(default_factory=list[Segment])
    group: Ix = field(default_factory=lambda: ix(1))
    kept: tuple[Tensor, Buffer] | None = None


@dataclass(frozen=True)
class UnpackedGemm:
    """A product of two matrices that come at run time; all rows share the right one, and tasks pack what they use."""

    made: Tensor
    depth: Var
    left: Matrix
    right: Matrix


@dataclass(frozen=True)
class WindowGemm:
    """A convolution or a pool: a window that slides over an image. Pools have no `weights`."""

    made: Tensor
    image: Operand
    weights: Buffer | None


FusibleGemm = PackedGemm | BatchedGemm
Product = PackedGemm | BatchedGemm | UnpackedGemm | WindowGemm
Work = Loops | RunningTotal | Fill | SegmentCopy | Product | Pack | Extern


@dataclass(eq=False)
class Cluster:
    """Tensors computed in one loop nest. `reduced` variables are the inner loops that reductions run over.

    `work` says what kind of kernel it is. With a product, the loops are its epilogue; `Pack` and `Extern` have none.
    """

    order: int
    vars: list[Var]
    work: Work = field(default_factory=Loops)
    reduced: list[Var] = field(default_factory=list[Var])
    members: dict[Tensor, Index] = field(default_factory=dict[Tensor, Index])
    pieces: list[tuple[Tensor, Index, Buffer, Index]] = field(default_factory=list[tuple[Tensor, Index, Buffer, Index]])
    stores: list[Store] = field(default_factory=list[Store])
    reductions: dict[Tensor, Reduction] = field(default_factory=dict[Tensor, Reduction])
    bound: dict[Tensor, dict[Var, Ix]] = field(default_factory=dict[Tensor, dict[Var, Ix]])
    sources: list[str] = field(default_factory=list[str])

    @property
    def products(self) -> tuple[Tensor, ...]:
        return products_of(self.work)

    @property
    def producer(self) -> Cluster | None:
        """The product whose rows this one reads in its task."""
        work = self.work
        return work.left if isinstance(work, FusibleGemm) and isinstance(work.left, Cluster) else None

    @property
    def kept(self) -> tuple[Tensor, Buffer] | None:
        """What a consumer reads of it in its task."""
        return self.work.kept if isinstance(self.work, FusibleGemm) else None

    @property
    def space(self) -> Ix:
        return product(v.extent for v in self.vars)


@dataclass(frozen=True)
class BackToBack:
    """Two products in one task: attention, or a fused MLP. `kept` are the producer's rows, which the consumer reads."""

    producer: Cluster
    kept: tuple[Tensor, Buffer]
    consumer: Cluster


Step = Cluster | BackToBack


@dataclass
class Schedule:
    clusters: list[Cluster]
    temporaries: dict[Tensor, Buffer]

    @property
    def steps(self) -> list[Step]:
        """What becomes one kernel each, in execution order."""
        consumers = {c.producer: c for c in self.clusters if c.producer is not None}
        return [_step(c, consumers.get(c)) for c in self.clusters if c.producer is None]


def _step(cluster: Cluster, consumer: Cluster | None) -> Step:
    return cluster if consumer is None or cluster.kept is None else BackToBack(cluster, cluster.kept, consumer)


def products_of(work: Work) -> tuple[Tensor, ...]:
    """What a task computes before its epilogue; all have the same rows, columns and left operand."""
    if not isinstance(work, Product):
        return ()
    return (work.made, *work.siblings) if isinstance(work, PackedGemm) else (work.made,)


def operands_of(work: Work) -> list[Buffer]:
    """What a kernel reads whole from memory, beside the loads of its loops."""
    match work:
        case PackedGemm():
            return _in_memory(work.left)
        case BatchedGemm():
            segments = [s.source.buffer for s in work.segments if s.source is not None]
            return [*_in_memory(work.left), work.right.buffer, *segments]
        case UnpackedGemm():
            return [work.left.buffer, work.right.buffer]
        case WindowGemm():
            return [work.image.buffer] if work.weights is None else [work.image.buffer, work.weights]
        case Pack():
            return [work.source.buffer]
        case Extern():
            return [b for b in work.operands if b is not None]
        case _:
            return []


def _in_memory(left: Operand | Cluster) -> list[Buffer]:
    return [left.buffer] if isinstance(left, Operand) else []


def results_of(work: Work) -> list[Buffer]:
    """What a kernel writes beside the stores of its loops."""
    if isinstance(work, Pack):
        return [work.target]
    return [b for b in work.results if b is not None] if isinstance(work, Extern) else []
