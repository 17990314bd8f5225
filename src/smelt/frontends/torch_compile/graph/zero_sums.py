"""Sums that are zero but for roundings, which stay in torch.

Input: a backward graph. Output: the same graph, with a mark on the nodes that make such sums, and on views of them.
Invariant: a marked sum runs over an axis along which its summands cancel, and nothing but results of the graph is made
from it. Softmax does not feel what is added to a whole row of scores, so the gradient of a bias of all keys is zero.
What comes out is the roundings of the summands, other ones with each order of computation: no bound tells right from
wrong. The summands themselves, which the weights' gradient is made of, are verified.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from math import prod
from typing import Any, Final

import numpy as np
import torch
from torch.fx import GraphModule, Node

from smelt.frontends.torch_compile._torch import hint
from smelt.frontends.torch_compile.graph.table_gradients import BETTER_IN_TORCH

_aten: Final = torch.ops.aten
_UNKNOWN_SIZE: Final = 128
_VIEWS: Final = (_aten.view.default, _aten._unsafe_view.default, _aten.reshape.default)
_SAME_AXES: Final = (_aten.clone.default, _aten.detach.default, _aten.mul.Scalar, _aten.div.Scalar)
_PRODUCTS: Final = (_aten.bmm.default, _aten.mm.default)
_FLASH: Final = _aten._scaled_dot_product_flash_attention_for_cpu_backward.default
_KEYS: Final = 1  # the place of their gradient among the results of attention's


def keep_zero_sums(module: GraphModule) -> None:
    """Mark them in place."""
    for node in module.graph.nodes:
        if node.target is _aten.sum.dim_IntList and _is_zero(node) and _ends_here(node):
            for one in (node, *_views_of(node)):
                one.meta[BETTER_IN_TORCH] = "zero but for roundings"


def spare_threads(module: GraphModule) -> None:
    """In a graph that torch runs: marked sums in the calling thread. Right after a session its threads still wait for
    more, and torch's would have to share their cores."""
    sums = (node for node in module.graph.nodes if node.target is _aten.sum.dim_IntList and not node.kwargs)
    marked = [node for node in sums if BETTER_IN_TORCH in node.meta]
    for node in marked:
        node.target = summed
    if marked:
        module.recompile()


def summed(tensor: torch.Tensor, axes: list[int], keepdim: bool = False) -> torch.Tensor:
    """What aten::sum.dim_IntList gives."""
    if tensor.dtype not in (torch.float32, torch.float64) or tensor.device.type != "cpu" or not axes:
        return _aten.sum.dim_IntList(tensor, axes, keepdim)
    return torch.from_numpy(np.asarray(tensor.detach().numpy().sum(axis=tuple(axes), keepdims=keepdim)))


def _is_zero(node: Node) -> bool:
    summed: Any = node.args[0]
    axes: Any = node.args[1]
    return bool(axes) and any(_cancels(summed, axis % len(_sizes(summed))) for axis in axes)


def _ends_here(node: Node) -> bool:
    """Whether only views of the sum are made from it, for results of the graph."""
    return all(user.op == "output" or (user.target in _VIEWS and _ends_here(user)) for user in node.users)


def _views_of(node: Node) -> Iterator[Node]:
    for user in node.users:
        if user.target in _VIEWS:
            yield user
            yield from _views_of(user)


def _sizes(node: Node) -> list[int]:
    return [hint(size, _UNKNOWN_SIZE) for size in node.meta["val"].shape]


def _cancels(node: Any, axis: int) -> bool:
    """Whether a tensor's sum along the axis is zero but for roundings."""
    if not isinstance(node, Node) or not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    given: Any = node.args
    if node.target is _aten._softmax_backward_data.default:
        return bool(given[2] % len(_sizes(node)) == axis)
    if node.target is operator.getitem:
        return given[0].target is _FLASH and bool(given[1] == _KEYS) and axis == len(_sizes(node)) - 2
    return any(_cancels(source, place) for source, place in _sources(node, axis))


def _sources(node: Node, axis: int) -> list[tuple[Any, int]]:
    """The tensors whose sum along an axis is that of the node, up to a linear map."""
    given: Any = node.args
    rank = len(_sizes(node))
    if node.target in _SAME_AXES:
        return [(given[0], axis)]
    if node.target is _aten.t.default:
        return [(given[0], rank - 1 - axis)]
    if node.target is _aten.transpose.int:
        first, second = (int(place) % rank for place in given[1:3])
        return [(given[0], {first: second, second: first}.get(axis, axis))]
    if node.target is _aten.permute.default:
        return [(given[0], given[1][axis] % rank)]
    if node.target in _VIEWS:
        return [(given[0], place) for place in _inside(_sizes(given[0]), _sizes(node), axis)]
    if node.target in _PRODUCTS and axis >= rank - 2:
        return [(given[axis - (rank - 2)], axis)]
    return []


def _inside(before: list[int], after: list[int], axis: int) -> list[int]:
    """The axes of a tensor that the given axis of a view of it is made of."""
    outer, inner = prod(after[:axis]), prod(after[axis + 1 :])
    return [
        place
        for place, size in enumerate(before)
        if size > 1 and prod(before[:place]) % outer == 0 and prod(before[place + 1 :]) % inner == 0
    ]
