"""What a nest does, in size expressions: operations, bytes moved, axes indexed by data.

Input: a `Nest`. Output: `Ix`. Invariant: for reports and task sizes only; nothing depends on these being exact.
"""

from __future__ import annotations

from smelt.codegen.kernel_forms import PackedContraction, WindowKernel
from smelt.codegen.loops import Nest
from smelt.ir.kernel import Contraction, Ix, Tensor, ix, product
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
    """The operations of the loops, and two for each term of a product."""
    terms = ix(0)
    for made in nest.products:
        terms = terms + _depth(made)
    return product(v.extent for v in (*nest.outer, *nest.inner)) * (terms * 2 + per_point)


def _depth(made: Tensor) -> Ix:
    """Terms of one element of a product, as it is stated: Winograd's form computes fewer."""
    definition = made.definition
    if isinstance(definition, WindowKernel):
        taps, panels = ix(definition.geometry.taps), definition.b
        if panels is None or definition.form == "depthwise":
            return taps
        if definition.form == "dots":
            return taps * (definition.a.shape[-1] // definition.groups)
        return taps * panels.shape[-2] if definition.form == "winograd" else panels.shape[-2]
    return definition.a.shape[-1] if isinstance(definition, (PackedContraction, Contraction)) else ix(0)


def moved_bytes(nest: Nest) -> Ix:
    """Bytes of distinct accesses: each buffer once per way of walking it."""
    read: dict[tuple[int, str], Ix] = {}
    for node in E.walk(*(s.value for s in nest.stores), *(r.value for r in nest.reductions)):
        if isinstance(node.kind, E.Load):
            used = product(v.extent for v in node.kind.offset.vars)
            read[(node.kind.buffer.uid, node.kind.offset.key)] = used * E.SIZE_BYTES[node.dtype]
    total = _operand_bytes(nest)
    for size in read.values():
        total = total + size
    for store in nest.stores:
        total = total + product(v.extent for v in store.offset.vars) * E.SIZE_BYTES[store.value.dtype]
    return total


def _operand_bytes(nest: Nest) -> Ix:
    """What products read: the left operand once, each right one."""
    total, seen = ix(0), set[Tensor]()
    for made in nest.products:
        definition = made.definition
        if not isinstance(definition, (PackedContraction, Contraction, WindowKernel)):
            continue
        for operand in (definition.a, definition.b):
            if operand is not None and operand not in seen:
                seen.add(operand)
                total = total + operand.elements * 4
    return total
