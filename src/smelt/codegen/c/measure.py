"""What a nest does, in size expressions: operations, bytes moved, axes indexed by data.

Input: a `Nest`. Output: `Ix`. Invariant: for reports and task sizes only; nothing depends on these being exact.
"""

from __future__ import annotations

from smelt.codegen.loops import Nest
from smelt.ir.kernel import Ix, ix, product
from smelt.ir.kernel import expr as E


def data_extents(nest: Nest) -> tuple[Ix, ...]:
    """Sizes of axes that are indexed by data."""
    roots = [s.value for s in nest.stores] + [r.value for r in nest.reductions]
    found: dict[Ix, None] = {}
    for node in E.walk(*roots):
        if isinstance(node.kind, E.Load):
            found.update((atom.extent, None) for atom in node.kind.offset.data)
    return tuple(found)


def flops(nest: Nest, per_point: int) -> Ix:
    return product(v.extent for v in (*nest.outer, *nest.inner)) * per_point


def moved_bytes(nest: Nest) -> Ix:
    """Bytes of distinct accesses: each buffer once per way of walking it."""
    read: dict[tuple[int, str], Ix] = {}
    for node in E.walk(*(s.value for s in nest.stores), *(r.value for r in nest.reductions)):
        if isinstance(node.kind, E.Load):
            used = product(v.extent for v in node.kind.offset.vars)
            read[(node.kind.buffer.uid, node.kind.offset.key)] = used * E.SIZE_BYTES[node.dtype]
    total = ix(0)
    for size in read.values():
        total = total + size
    for store in nest.stores:
        total = total + product(v.extent for v in store.offset.vars) * E.SIZE_BYTES[store.value.dtype]
    return total
