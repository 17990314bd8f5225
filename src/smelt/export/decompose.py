"""torch's own decompositions as the last fallback.

Input: an op with example arguments (fake tensors). Output: a small FX graph of simpler ops, or a reason. Invariant:
one step only: the translator decides about each op of the result anew.
"""

# What torch and sympy hand over is not annotated.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx

from smelt.export.records import Refused


@lru_cache(maxsize=1)
def _table() -> dict[Any, Callable[..., Any]]:
    # Importing torch's reference implementations registers more decompositions than the core set.
    from torch._decomp import core_aten_decompositions, decomposition_table

    return {**decomposition_table, **core_aten_decompositions()}


def decomposition(target: Any) -> Callable[..., Any] | None:
    """What torch runs instead of `target`, or None."""
    if not isinstance(target, OpOverload):
        return None
    found = _table().get(target)
    if found is not None:
        return found
    try:
        composite = target.namespace != "prims" and target._can_decompose()  # pyright: ignore[reportPrivateUsage]
    except RuntimeError:
        return None
    return target.decompose if composite else None


def targets() -> list[str]:
    """Names of all targets with a decomposition in torch's table."""
    return sorted(target.name() for target in _table() if isinstance(target, OpOverload))


def decomposed(
    target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], new_guards: bool = False
) -> torch.fx.GraphModule:
    """The FX graph of `target` on fake tensors; its placeholders are the tensors and symbolic numbers, in order.

    A decomposition that looks at a size would fix it, or choose a branch by it, for the whole program: it is refused
    unless `new_guards` says that someone checks what was assumed.
    """
    function = decomposition(target)
    if function is None:
        raise Refused("torch has no decomposition")
    leaves, spec = pytree.tree_flatten(_plain((args, kwargs)))
    traced = [leaf for leaf in leaves if is_traced(leaf)]

    def run(*tensors: Any) -> Any:
        rest = iter(tensors)
        filled = [next(rest) if is_traced(leaf) else leaf for leaf in leaves]
        again, named = pytree.tree_unflatten(filled, spec)
        return function(*again, **named)

    try:
        mode = next((leaf.fake_mode for leaf in traced if hasattr(leaf, "fake_mode")), None)
        if mode is None:
            return make_fx(run, pre_dispatch=False)(*traced)
        fixed = mode.shape_env.error_on_new_guards() if mode.shape_env is not None and not new_guards else nullcontext()
        with mode, fixed, _quiet():
            return make_fx(run, pre_dispatch=False)(*traced)
    except Exception as error:
        text = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise Refused(f"torch's decomposition failed: {text}") from error


@contextmanager
def _quiet() -> Generator[None, None, None]:
    """A refusal is an answer: torch need not print the stack it came from."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _plain(tree: Any) -> Any:
    """FX hands over lists that cannot be changed; decompositions change theirs."""
    if isinstance(tree, (list, tuple)):
        items = [_plain(item) for item in tree]
        return items if isinstance(tree, list) else tuple(items)
    return {name: _plain(item) for name, item in tree.items()} if isinstance(tree, dict) else tree


def is_traced(leaf: Any) -> bool:
    return isinstance(leaf, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool))
