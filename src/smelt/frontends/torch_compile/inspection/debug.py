"""Ways to look at compiled graphs: comparison with torch, interception.

Input: a graph, its compiled function and options. Output: the function with the wanted checks around it. Invariant:
without these options nothing is wrapped; a comparison never changes a result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from smelt.base.errors import TorchError
from smelt.frontends.intercept import described


def checked(
    call: Callable[[Sequence[Any]], Sequence[Any]], eager: GraphModule, tolerance: float
) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """The call, every result of which is compared with torch's."""

    def run(args: Sequence[Any]) -> Sequence[Any]:
        results = call(args)
        for place, (found, wanted) in enumerate(zip(results, eager(*args), strict=True)):
            problem = difference(found, wanted, tolerance)
            if problem:
                raise TorchError("SM-TORCH-002", f"output {place} of a compiled graph {problem}")
        return results

    return run


def difference(found: Any, wanted: Any, tolerance: float) -> str:
    """What is wrong with a result, or nothing."""
    if not isinstance(wanted, torch.Tensor):
        return "" if found == wanted else f"is {found}, torch has {wanted}"
    if found.dtype != wanted.dtype or found.shape != wanted.shape or found.stride() != wanted.stride():
        return f"is {_kind(found)}, torch has {_kind(wanted)}"
    if not wanted.is_floating_point():
        return "" if torch.equal(found, wanted) else "differs from torch's"
    a, b = found.double(), wanted.double()
    finite = b.isfinite()
    if not torch.equal(finite, a.isfinite()) or not torch.equal(b.isnan(), a.isnan()):
        return "has other infinities or NaN than torch's"
    a, b = a[finite], b[finite]
    scale = float(b.square().mean().sqrt()) if b.numel() else 0.0
    error = float(((a - b).abs() / (b.abs() + scale + 1e-30)).max()) if b.numel() else 0.0
    return "" if error <= tolerance else f"differs from torch's by {error:.1e}, more than {tolerance:.1e}"


def _kind(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype}{list(tensor.shape)} with strides {list(tensor.stride())}"


def intercepted(graph: GraphModule, callback: bool | Callable[..., None]) -> Callable[..., Any]:
    """The original graph, whose inputs are printed or handed over at each call."""
    names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]

    def run(*args: Any) -> Any:
        given = dict(zip(names, args, strict=True))
        if callable(callback):
            callback(given)
        else:
            print("smelt: call of a graph with " + ", ".join(f"{n}: {described(v)}" for n, v in given.items()))
        return graph(*args)

    return run
