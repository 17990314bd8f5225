"""Memory order of tensors that cross a part's border.

Input: a part's graph, whose values know their strides. Output: the same graph over dense row-major inputs and outputs,
and what to do with a tensor before and after the call. Invariant: an output has the very strides that torch's tracing
saw, since views that torch makes of it later rely on them; a tensor that is dense in another order is not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from smelt.frontends.torch_compile._torch import hint, is_dense
from smelt.frontends.torch_compile.graph.symbols import Sizes, sizes_of

Change = Callable[[Any], Any]
_UNKNOWN = 1 << 20  # a size that depends on data, when axes are put in order: any larger than 1


@dataclass(frozen=True)
class Layouts:
    """Changes by place: arguments before the call, results after it. None where the tensor is used as it is.

    `restride` gives the sizes and strides of results that no transposition makes, from the arguments. `pairs` are the
    results that the session gives as pairs of real numbers.
    """

    before: tuple[Change | None, ...]
    after: tuple[Change | None, ...]
    restride: dict[int, Sizes]
    pairs: frozenset[int] = frozenset()


def with_pairs(layouts: Layouts, module: GraphModule) -> Layouts:
    """The same, for sessions that hold a complex tensor as a real one with a last axis of 2."""
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    results: Sequence[Any] = next(n for n in module.graph.nodes if n.op == "output").args[0]
    before = tuple(
        _as_pairs(change) if _is_complex(node) else change
        for node, change in zip(placeholders, layouts.before, strict=True)
    )
    pairs = frozenset(at for at, node in enumerate(results) if _is_complex(node))
    return replace(layouts, before=before, pairs=pairs)


def _is_complex(node: Any) -> bool:
    value = node.meta.get("val") if isinstance(node, Node) else None
    return isinstance(value, torch.Tensor) and value.is_complex()


def _as_pairs(change: Change | None) -> Change:
    def paired(tensor: torch.Tensor) -> torch.Tensor:
        changed = tensor if change is None else change(tensor)
        return torch.view_as_real(changed.resolve_conj().contiguous())

    return paired


def normalize_layouts(module: GraphModule) -> Layouts:
    """Change the graph so that every tensor crosses the border row-major; say how to get there and back."""
    graph = module.graph
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    before = tuple(_normalize_input(node) for node in placeholders)
    output = next(n for n in graph.nodes if n.op == "output")
    results = list(output.args[0])
    after: list[Change | None] = []
    restride: dict[int, Sizes] = {}
    for place, node in enumerate(results):
        order = _order(node)
        after.append(None)
        if order is None:
            known = _strides(placeholders, node)
            if known is not None:
                restride[place] = known
        elif not _rising(order):
            with graph.inserting_before(output):
                results[place] = _permuted(graph, node, order)
            after[place] = _permutation(_inverse(order))
    output.args = (tuple(results),)
    module.recompile()
    return Layouts(before, tuple(after), restride)


def _normalize_input(node: Node) -> Change | None:
    """A dense tensor in another order comes as its row-major copy; the graph begins with the way back."""
    order = _order(node)
    if order is None or _rising(order):
        return None
    users = list(node.users)
    value = node.meta["val"]
    graph = node.graph
    last = [n for n in graph.nodes if n.op == "placeholder"][-1]
    with graph.inserting_after(last):
        back = graph.call_function(torch.ops.aten.permute.default, (node, list(_inverse(order))))
    back.meta = dict(node.meta)
    node.meta = {**node.meta, "val": value.permute(order)}
    for user in users:
        user.replace_input_with(node, back)
    return _permutation(order)


def _permuted(graph: torch.fx.Graph, node: Node, order: Sequence[int]) -> Node:
    made = graph.call_function(torch.ops.aten.permute.default, (node, list(order)))
    made.meta = {**node.meta, "val": node.meta["val"].permute(order)}
    return made


def _order(node: Any) -> tuple[int, ...] | None:
    """The axes from slowest to fastest, if the tensor is dense in that order; None for anything else."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return tuple(range(value.dim())) if isinstance(value, torch.Tensor) else ()
    if is_dense(value):
        return tuple(range(value.dim()))
    sizes = [(-hint(s, _UNKNOWN), -hint(d, _UNKNOWN)) for s, d in zip(value.stride(), value.shape, strict=True)]
    axes = sorted(range(value.dim()), key=lambda axis: sizes[axis])
    return tuple(axes) if is_dense(value.permute(axes)) else None


def _rising(order: Sequence[int]) -> bool:
    return all(axis == place for place, axis in enumerate(order))


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    back = [0] * len(order)
    for place, axis in enumerate(order):
        back[axis] = place
    return tuple(back)


def _permutation(order: Sequence[int]) -> Change:
    axes = tuple(order)
    return lambda tensor: tensor.permute(axes)


def _strides(placeholders: Sequence[Node], node: Any) -> Sizes | None:
    """Sizes and strides of a result that is not dense in any order: expanded, or with gaps."""
    value = node.meta["val"]
    found = sizes_of(placeholders, [value.shape, value.stride()])
    return found if found is None or callable(found) else lambda _args: found


def restrided(tensor: Any, sizes: Sequence[int], strides: Sequence[int]) -> Any:
    """A copy with the given strides. Of elements that share memory, each holds the same value."""
    made = torch.empty_strided(sizes, strides, dtype=tensor.dtype)
    if any(stride == 0 and size > 1 for size, stride in zip(sizes, strides, strict=True)):
        first = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in strides)
        made[first].copy_(tensor[first])
        return made
    return made.copy_(tensor)
