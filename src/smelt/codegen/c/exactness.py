"""Which values must be rounded exactly as written.

Input: the expressions of a nest. Output: `exact(roots)`, the expressions below a step function; `rounded(roots)`, the
products that must not become part of a fused multiply-add. Invariant: what is in neither may be off by one rounding and
its users are off by no more than that. Below a floor, a comparison or a conversion to integers one rounding can be a
whole step; and a product that is read in two places has one value: a softmax that takes the largest of the rounded
scores from the unrounded ones gets a positive difference, which at large scores is more than an exponential can take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from smelt.ir.kernel import Expr
from smelt.ir.kernel import expr as E

_STEPS = frozenset(
    ("floor", "ceil", "round", "trunc", "sign", "mod", "fmod", "eq", "ne", "lt", "le", "gt", "ge", "cvt")
)
_SUMS = frozenset(("add", "sub"))  # what a compiler joins with a product that they read
_NO_PRODUCTS = frozenset(("add", "sub", "neg", "abs", "min", "max", "sel", "cvt", "sqrt", *_STEPS))  # as C ends them


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


def rounded(roots: Iterable[Expr], steps: frozenset[int]) -> frozenset[int]:
    """Uids of products of floats that a sum or a difference reads, and somebody else or a step function does too.

    `steps` is what `exact` gave for the roots. Who reads a product in other nests is told by `expr.rounded`."""
    roots = tuple(roots)
    readers = Counter(root.uid for root in roots)
    summed: dict[int, Expr] = {}
    for node in E.walk(*roots):
        readers.update({child.uid for child in E.children(node)})
        if isinstance(node.kind, E.Op) and node.kind.name in _SUMS and node.dtype in E.FLOATS:
            summed.update((a.uid, a) for a in node.kind.args if _is_product(a))
    return frozenset(uid for uid, node in summed.items() if readers[uid] > 1 or uid in steps or _is_shared(node))


def _is_shared(node: Expr) -> bool:
    return isinstance(node.kind, E.Op) and node.kind.name == "rounded"


def _is_product(node: Expr) -> bool:
    return isinstance(node.kind, E.Op) and node.kind.name not in _NO_PRODUCTS


def _is_step(node: Expr) -> bool:
    kind = node.kind
    if not isinstance(kind, E.Op) or kind.name not in _STEPS:
        return False
    return kind.name != "cvt" or node.dtype not in E.FLOATS
