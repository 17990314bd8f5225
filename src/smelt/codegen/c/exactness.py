"""Which values must be rounded exactly as written.

Input: the expressions of a nest. Output: `exact(roots)`, the expressions below a step function. Invariant: what is not
in it may be off by one rounding and its users are off by no more than that; below a floor, a comparison or a conversion
to integers one rounding can be a whole step.
"""

from __future__ import annotations

from collections.abc import Iterable

from smelt.ir.kernel import Expr
from smelt.ir.kernel import expr as E

_STEPS = frozenset(
    ("floor", "ceil", "round", "trunc", "sign", "mod", "fmod", "eq", "ne", "lt", "le", "gt", "ge", "cvt")
)


def exact(roots: Iterable[Expr]) -> frozenset[int]:
    """Uids of the operands of step functions, and of all that they are computed from."""
    stack = [a for node in E.walk(*roots) if _is_step(node) for a in E.children(node)]
    found: set[int] = set()
    while stack:
        node = stack.pop()
        if node.uid not in found:
            found.add(node.uid)
            stack.extend(E.children(node))
    return frozenset(found)


def _is_step(node: Expr) -> bool:
    kind = node.kind
    if not isinstance(kind, E.Op) or kind.name not in _STEPS:
        return False
    return kind.name != "cvt" or node.dtype not in E.FLOATS
