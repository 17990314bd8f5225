"""Where the panels of a run-time right operand lie, and which batch indices share them.

Input: the operand in its own strides, in the product's loop variables. Output: what to pack, and the panels that the
product reads for a batch index. Invariant: batch indices that read the same elements read the same panels: heads that
share keys and values, and axes that broadcast, are packed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from smelt.ir.kernel import Buffer, Ix, Var, flat, ix, of
from smelt.ir.kernel.index import Atom, Fn, coefficient, exact_div, substitute

from .cluster import Operand, Pack
from .matching import bare

GEMV_ROWS = 4


def reads_in_place(source: Operand, depth: Var, column: Var) -> bool:
    """Whether the rows or the columns of the operand are contiguous: then a GEMV needs no panels."""
    steps = [coefficient(source.offset, v) for v in (depth, column)]
    return any(s is not None and s[0].const == 1 for s in steps)


def panels_of(
    source: Operand, loops: Sequence[Var], depth: Var, name: str, fresh: Callable[[Ix], Var]
) -> tuple[Pack, Operand]:
    """What to pack, and where the product finds the panels of its batch index."""
    offset, batch, places = source.offset, list[Var](), list[Ix]()
    for var in loops[:-2]:
        if var not in offset.vars:
            continue
        group = group_of(offset, var)
        if group is None:
            batch.append(var)
            places.append(of(var))
        else:
            one = fresh(group[1])
            offset = substitute(offset, {var: of(one) * group[0]})
            batch.append(one)
            places.append(of(var) // group[0])
    column = loops[-1]
    shape = (*(v.extent for v in batch), (column.extent + 15) // 16, depth.extent, ix(16))
    target = Buffer(name, "f32", shape)
    place = flat((*places, ix(0), ix(0), ix(0)), shape)
    rows = loops[-2].extent if reads_in_place(source, depth, column) else None
    return Pack(Operand(source.buffer, offset), batch, depth, column, target, rows), Operand(target, place)


def group_of(offset: Ix, var: Var) -> tuple[Ix, Ix] | None:
    """(size, count) of the groups of neighbours that `offset` does not tell apart."""
    for atom in sorted(offset.atoms, key=lambda a: a.key):
        if not isinstance(atom, Fn) or atom.op != "floordiv" or bare(atom.args[0]) is not var:
            continue
        size = atom.args[1]
        count = exact_div(var.extent, size)
        if count is not None and not _tells_apart(offset, var, size, count):
            return size, count
    return None


def _tells_apart(offset: Ix, var: Var, size: Ix, count: Ix) -> bool:
    group, member = Var(f"{var.name}g", count), Var(f"{var.name}m", size)
    table: dict[Atom, Ix] = {var: of(group) * size + of(member)}
    return member in substitute(offset, table).vars
