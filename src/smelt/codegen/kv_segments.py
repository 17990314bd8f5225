"""KV-cache segments: a cache of keys is assembled of the past's, then those of the call.

Input: a product's right operand, and where the pieces of the tensor it reads were placed. Output: its segments, in the
product's variables. Invariant: a segment that is only copied may be read where it comes from, and copied by the task
that reads it; that is done where a GEMV reads it once, and only when no other kernel reads the assembled tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

from smelt.ir.kernel import Assemble, Expr, Ix, Tensor, Var, flat, ix
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.index import coefficient, exact_div

from .cluster import BatchedGemm, Cluster, Loops, Operand, Pack, Segment, SegmentCopy, operands_of
from .matching import bare
from .shared_panels import group_of

Index = tuple[Ix, ...]


def segments_of(element: Expr, over: Sequence[Var], homes: Sequence[Cluster]) -> list[Segment]:
    """The segments of an operand whose element this is, or nothing when they do not lie along one of its two axes.

    `over` are the product's variables, the operand's two axes last; `homes` are the clusters of the pieces."""
    kind = element.kind
    if not isinstance(kind, E.Ref) or not isinstance(kind.tensor.definition, Assemble) or not homes:
        return []
    pieces = kind.tensor.definition.pieces
    axis = _axis(pieces)
    along = bare(kind.index[axis]) if axis is not None else None
    if axis is None or along is None or along not in over[-2:]:
        return []
    width = next(v for v in over[-2:] if v is not along)
    made = [
        _segment(kind.tensor, kind.index, axis, along, offset[axis], piece, home)
        for (offset, piece), home in zip(pieces, homes, strict=True)
    ]
    if not all(_has_rows(p, along, width) for p in made) or not any(p.home is not None for p in made):
        return []
    return made


def _axis(pieces: Sequence[tuple[Index, Tensor]]) -> int | None:
    """The one axis that pieces follow each other along."""
    moved = {a for offset, _ in pieces for a, o in enumerate(offset) if o != ix(0)}
    return moved.pop() if len(moved) == 1 else None


def _segment(whole: Tensor, index: Index, axis: int, along: Var, start: Ix, piece: Tensor, home: Cluster) -> Segment:
    """`along` counts from the segment's own start."""
    target = tuple(i + start if a == axis else i for a, i in enumerate(index))
    there = flat(target, whole.shape)
    element = piece.at(index).kind
    copied = isinstance(element, E.Load) and not element.offset.data and _only_copies(home)
    source = Operand(element.buffer, element.offset) if copied and isinstance(element, E.Load) else None
    return Segment(source, there, along, start, piece.shape[axis], home if source is not None else None)


def _only_copies(home: Cluster) -> bool:
    return len(home.members) == 1 and len(home.pieces) == 1 and isinstance(home.work, Loops)


def _has_rows(segment: Segment, along: Var, width: Var) -> bool:
    """Rows along the axis, contiguous across it, both where they come from and where they go."""
    for offset in (segment.there, *((segment.source.offset,) if segment.source is not None else ())):
        step, unit = coefficient(offset, along), coefficient(offset, width)
        if step is None or unit is None or unit[0].const != 1:
            return False
    return True


def neighbours(offset: Ix, batch: Sequence[Var]) -> Ix:
    """How many batch indices in a row read the same operand: heads that share keys and values."""
    if not batch:
        return ix(1)
    last = batch[-1]
    if last not in offset.vars:
        return last.extent
    found = group_of(offset, last)
    return found[0] if found is not None and exact_div(last.extent, found[0]) is not None else ix(1)


def keep_segments(clusters: Sequence[Cluster], read_by_loops: set[int]) -> None:
    """Keep segments where both products of a back-to-back pair and nobody else read the tensors; those who copied them
    step back."""
    links: list[BatchedGemm] = []
    for consumer in clusters:
        pair = [c for c in (consumer.producer, consumer) if c is not None and isinstance(c.work, BatchedGemm)]
        if len(pair) == 2 and consumer.producer is not None:
            links += _kept(pair, clusters, read_by_loops)
    for cluster in clusters:
        if isinstance(cluster.work, BatchedGemm) and all(cluster.work is not link for link in links):
            cluster.work.segments = []


def _kept(pair: Sequence[Cluster], clusters: Sequence[Cluster], read_by_loops: set[int]) -> list[BatchedGemm]:
    """The products of a pair whose segments stay."""
    works = [c.work for c in pair if isinstance(c.work, BatchedGemm)]
    if not all(_may_keep(work, clusters, read_by_loops) for work in works):
        return []
    groups = [_shared(cluster) for cluster in pair]
    if groups[0] != groups[1]:
        return []
    for cluster, work in zip(pair, works, strict=True):
        work.group = groups[0]
        for segment in work.segments:
            if segment.home is not None:
                segment.home.work = SegmentCopy(cluster.vars[-2].extent)
    return works


def _shared(link: Cluster) -> Ix:
    assert isinstance(link.work, BatchedGemm) and link.work.unpacked is not None
    return neighbours(link.work.unpacked.offset, link.vars[:-2])


def _may_keep(link: BatchedGemm, clusters: Sequence[Cluster], read_by_loops: set[int]) -> bool:
    """Whether one pack and nobody else reads the assembled operand, beside the product itself."""
    if not link.segments or link.unpacked is None:
        return False
    uid = link.unpacked.buffer.uid
    works = [c.work for c in clusters]
    gemv = [w for w in works if isinstance(w, BatchedGemm) and w.unpacked is not None and w.unpacked.buffer.uid == uid]
    readers = [w for w in works if any(b.uid == uid for b in operands_of(w))]
    return uid not in read_by_loops and len(gemv) == 1 and [type(w) for w in readers] == [Pack]
