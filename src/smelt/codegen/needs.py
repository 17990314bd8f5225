"""What needs what, before anything is placed.

Input: tensors, and a function that gives the operands of one. Output: all that they need, operands first. Invariant: a
tensor is there once; graphs may be as deep as they like.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from smelt.ir.kernel import Expr, Ix, Map, Reduce, Scan, Tensor, Var, ix, of
from smelt.ir.kernel import expr as E


def operands_first(roots: Sequence[Tensor], refs: Callable[[Tensor], Sequence[Tensor]]) -> list[Tensor]:
    out: list[Tensor] = []
    seen: set[Tensor] = set()
    stack: list[tuple[Tensor, bool]] = [(t, False) for t in reversed(roots)]
    while stack:
        tensor, ready = stack.pop()
        if ready:
            out.append(tensor)
            continue
        if tensor in seen:
            continue
        seen.add(tensor)
        stack.append((tensor, True))
        stack.extend((t, False) for t in refs(tensor) if t not in seen)
    return out


def places(loops: Sequence[Var]) -> dict[Var, Ix]:
    """Each variable's own value; an axis of one element is always at 0, which is how its readers see it."""
    return {v: ix(0) if v.extent.const == 1 else of(v) for v in loops}


def iterated(tensor: Tensor) -> tuple[Ix, ...]:
    """The sizes of what the tensor iterates."""
    definition = tensor.definition
    return definition.src.shape if isinstance(definition, (Reduce, Scan)) else tensor.shape


def element_at(tensor: Tensor, where: tuple[Ix, ...]) -> Expr:
    """An element of it in terms of operands' elements."""
    definition = tensor.definition
    if isinstance(definition, Map):
        return tensor.expand(where)
    if isinstance(definition, (Reduce, Scan)):
        return definition.src.at(where)
    raise TypeError(definition)


def refs_in(element: Expr) -> list[E.Ref]:
    return [e.kind for e in E.walk(element) if isinstance(e.kind, E.Ref)]


def inlined_below(tensor: Tensor, refs: Callable[[Tensor], list[Tensor]], inlined: Collection[Tensor]) -> list[Tensor]:
    """The inlined tensors that are computed where a tensor is, at any depth."""
    found: dict[Tensor, None] = {}
    stack = [t for t in refs(tensor) if t in inlined]
    while stack:
        one = stack.pop()
        if one not in found:
            found[one] = None
            stack.extend(t for t in refs(one) if t in inlined)
    return list(found)
