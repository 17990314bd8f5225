"""What needs what, before anything is placed.

Input: tensors, and a function that gives the operands of one. Output: all that they need, operands first. Invariant: a
tensor is there once; graphs may be as deep as they like.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from smelt.ir.kernel import Tensor


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
