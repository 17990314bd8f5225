"""Gradients of embedding tables, which stay in torch.

Input: a backward graph. Output: the same graph, with a mark on the nodes that make such gradients. Invariant: a marked
node sums rows of a gradient into a table that is mostly zeros, at the end of the graph. ONNX has no op for it: a
session would fill the table with zeros and copy all of it once more to add a few rows.

Torch fills it with zeros too, page by page. The system hands out large memory as zeros that take no room until they are
written, so only the pages of the summed rows need be touched. The calling thread does so: right after a session its
threads still wait for more, and torch's would have to share their cores.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np
import torch
from torch.fx import GraphModule, Node

from smelt.frontends.torch_compile._torch import hint

BETTER_IN_TORCH: Final = "smelt.better_in_torch"  # in the meta of a node that could leave torch: why it does not
_aten: Final = torch.ops.aten
_UNKNOWN_SIZE: Final = 128
_NUMPY: Final = {torch.float32: np.float32, torch.float64: np.float64}


def keep_table_gradients(module: GraphModule) -> None:
    """Mark them in place."""
    for node in module.graph.nodes:
        if node.target is _aten.embedding_dense_backward.default and _is_mostly_zero(node):
            node.meta[BETTER_IN_TORCH] = "sums a few rows into a table of zeros"


def spare_zeros(module: GraphModule) -> None:
    """In a graph that torch runs: let marked nodes touch the rows that they sum, and no others."""
    tables = (node for node in module.graph.nodes if node.target is _aten.embedding_dense_backward.default)
    marked = [node for node in tables if BETTER_IN_TORCH in node.meta]
    for node in marked:
        node.target = table_gradient
    if marked:
        module.recompile()


def table_gradient(
    gradient: torch.Tensor, indices: torch.Tensor, rows: int, padding: int, by_frequency: bool
) -> torch.Tensor:
    """What aten::embedding_dense_backward gives: the rows of the gradient, summed by their indices."""
    if by_frequency or gradient.dtype not in _NUMPY or gradient.device.type != "cpu":
        return _aten.embedding_dense_backward.default(gradient, indices, rows, padding, by_frequency)
    width = gradient.shape[-1]
    table = np.zeros((rows, width), _NUMPY[gradient.dtype])
    places, summands = indices.reshape(-1).numpy(), gradient.detach().reshape(-1, width).numpy()
    order = np.argsort(places, kind="stable")
    order = order[places[order] != padding] if padding >= 0 else order
    if order.size:
        named, starts = np.unique(places[order], return_index=True)
        table[named] = np.add.reduceat(summands[order], starts, axis=0)
    return torch.from_numpy(table)


def _is_mostly_zero(node: Node) -> bool:
    indices: Any = node.args[1]
    rows: Any = node.args[2]
    counted = prod(hint(size, _UNKNOWN_SIZE) for size in indices.meta["val"].shape)
    return hint(rows.meta["val"] if isinstance(rows, Node) else rows, _UNKNOWN_SIZE) > counted
