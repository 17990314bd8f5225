"""The invariant of a schedule, checked: nothing is read before it was stored.

Input: clusters in execution order, resolved to stores and reductions over loads. Output: nothing, or a CodegenError
that names the buffer. Invariant: a cluster loads only what the region was given and what earlier clusters have stored.
What a cluster computes itself it reads as an expression, never from memory: its loops pass over a row several times,
and a load would take place in the first pass, before a value that needs a whole row is there.
"""

from __future__ import annotations

from collections.abc import Sequence

from smelt.base.errors import CodegenError
from smelt.ir.kernel import Buffer
from smelt.ir.kernel import expr as E

from .cluster import Cluster, operands_of, results_of


def check_schedule(clusters: Sequence[Cluster]) -> None:
    """Every buffer that is read was stored by an earlier cluster, or by none."""
    last = {buffer.uid: place for place, cluster in enumerate(clusters) for buffer in _written(cluster)}
    for place, cluster in enumerate(clusters):
        for uid, name in _reads(cluster).items():
            if last.get(uid, -1) >= place:
                raise CodegenError("SM-CODEGEN-003", f"{name} is read in step {place}, before it is complete")


def _written(cluster: Cluster) -> list[Buffer]:
    return [store.buffer for store in cluster.stores] + results_of(cluster.work)


def _reads(cluster: Cluster) -> dict[int, str]:
    """What a cluster reads from memory: uids and names."""
    roots = [s.value for s in cluster.stores] + [r.value for r in cluster.reductions.values()]
    buffers = [e.kind.buffer for e in E.walk(*roots) if isinstance(e.kind, E.Load)]
    return {b.uid: b.name for b in (*buffers, *operands_of(cluster.work))}
