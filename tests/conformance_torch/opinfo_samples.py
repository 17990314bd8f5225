"""Calls out of PyTorch's own operator database, chosen the same way everywhere.

Input: the entries of `op_db` in the installed torch. Output: for an entry and a dtype, at most N samples spread evenly
over the entry's list, made from one seed. Invariant: the same torch gives the same calls in every process.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

warnings.filterwarnings("ignore")

DTYPES = {"float32": torch.float32, "int64": torch.int64, "bool": torch.bool}
SEED = 20240
# What these return is whatever the memory held.
UNINITIALIZED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")


# (values, places) where any of several equal elements may be named: the position of `dim` among the arguments.
ANY_PLACE = {"argsort": 1, "kthvalue": 2, "median": 1, "mode": 1, "nanmedian": 1, "sort": 1, "topk": 2}


@dataclass(frozen=True)
class Sample:
    """One call: `function(*arguments, **keywords)`."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]

    def fresh(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments that a callee may overwrite."""
        return _map_tensors(torch.clone, (self.arguments, self.keywords))

    def in_double(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same arguments with float64 (complex128) in place of float32 (complex64)."""
        return pytree.tree_map(_doubled, (self.arguments, self.keywords))

    def differentiable(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Fresh arguments whose floating-point tensors are leaves that want a gradient."""
        return _map_tensors(lambda t: t.clone().requires_grad_(t.is_floating_point()), (self.arguments, self.keywords))


def entries() -> dict[str, Any]:
    """Every entry of the database by its full name (variants have a suffix)."""
    from torch.testing._internal import common_methods_invocations as database

    # Random ops are called through a wrapper that seeds the generator, which no graph can hold.
    database.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    return {_name(entry): entry for entry in database.op_db}


def dtypes_of(entry: Any) -> list[str]:
    return [name for name, dtype in DTYPES.items() if dtype in entry.dtypes]


def samples_of(entry: Any, dtype: str, limit: int) -> list[Sample]:
    """At most `limit` samples, spread evenly; 0 means all."""
    torch.manual_seed(SEED)
    made = list(entry.sample_inputs("cpu", DTYPES[dtype], requires_grad=False))
    if limit and len(made) > limit:
        made = [made[round(k * (len(made) - 1) / (limit - 1))] for k in range(limit)] if limit > 1 else made[:1]
    return [Sample(entry.op, (s.input, *s.args), dict(s.kwargs)) for s in made]


class _RandomOps(TorchDispatchMode):
    """Notes whether a random op was called."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def is_random(sample: Sample) -> bool:
    """Whether results depend on the generator's state, so that only shapes and dtypes can be compared."""
    with _RandomOps() as mode:
        arguments, keywords = sample.fresh()
        sample.function(*arguments, **keywords)
    return mode.seen


def _name(entry: Any) -> str:
    return entry.name + (f".{entry.variant_test_name}" if entry.variant_test_name else "")


def _map_tensors(change: Callable[[torch.Tensor], torch.Tensor], tree: Any) -> Any:
    return pytree.tree_map(lambda leaf: change(leaf) if isinstance(leaf, torch.Tensor) else leaf, tree)


def _doubled(leaf: Any) -> Any:
    wider = {torch.float32: torch.float64, torch.complex64: torch.complex128}
    if isinstance(leaf, torch.dtype):
        return wider.get(leaf, leaf)
    if isinstance(leaf, torch.Tensor):
        return leaf.to(wider.get(leaf.dtype, leaf.dtype), copy=True)
    return leaf
