"""Calls of functions written in C: a cluster each, which reads and writes whole buffers.

Input: a `Function` of the tensor language. Output: a cluster without loops. Invariant: operands lie in memory, in their
own order, before the function runs; a result that nobody asked for has no buffer; scratch memory is part of the arena.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from smelt.ir.kernel import Buffer, Function, Stored, Tensor, ix

from .cluster import Cluster, Extern, operands_of


def extern(function: Function, stored: Callable[[Tensor], Buffer], buffers: dict[Tensor, Buffer]) -> Cluster:
    """The call, with its operands and without results so far; its scratch memory is added to the buffers."""
    operands = [None if t is None else stored(t) for t in function.operands]
    scratch = None
    if function.scratch_bytes.const != 0:
        scratch = Buffer(f"t{len(buffers)}", "u8", (function.scratch_bytes,))
        buffers[Tensor(scratch.shape, "u8", Stored(scratch))] = scratch
    found = Buffer("found", "i64", (ix(len(function.found)),)) if function.found else None
    return Cluster(-1, [], Extern(function, operands, [None] * len(function.results), scratch, found))


def give(cluster: Cluster, tensor: Tensor, place: int, buffer: Buffer) -> None:
    """One of the results is wanted, in this buffer."""
    assert isinstance(cluster.work, Extern)
    cluster.work.results[place] = buffer
    if tensor.source and tensor.source not in cluster.sources:
        cluster.sources.append(tensor.source)


def passed(clusters: Iterable[Cluster]) -> set[int]:
    """Uids of what functions read."""
    return {b.uid for c in clusters if isinstance(c.work, Extern) for b in operands_of(c.work)}
