"""What is used of torch's private parts, in one place.

Input: nothing. Output: the names. Invariant: no other file of this folder reaches into a private module of torch.
"""

from __future__ import annotations

from typing import Any, Final, cast

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.utils._sympy.printers import PythonPrinter

_torch: Final = cast("Any", torch)
OpOverload: Final[Any] = _torch._ops.OpOverload
HigherOrderOperator: Final[Any] = _torch._ops.HigherOrderOperator
dynamo: Final[Any] = _torch._dynamo


def is_random(target: Any) -> bool:
    """Whether a call draws from torch's random state."""
    return isinstance(target, OpOverload) and torch.Tag.nondeterministic_seeded in target.tags


def is_mutable(target: Any) -> bool:
    """Whether a call writes to its arguments."""
    return isinstance(target, OpOverload) and bool(target._schema.is_mutable)


def hint(size: Any, otherwise: int) -> int:
    """The number that tracing saw, for a symbolic size."""
    if isinstance(size, int):
        return size
    return int(size.node.hint) if size.node.has_hint() else otherwise


__all__ = [
    "HigherOrderOperator",
    "OpOverload",
    "PythonPrinter",
    "aot_autograd",
    "dynamo",
    "hint",
    "is_mutable",
    "is_random",
    "min_cut_rematerialization_partition",
]
