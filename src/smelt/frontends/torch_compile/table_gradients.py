"""Gradients of embedding tables, which stay in torch.

Input: a backward graph. Output: the same graph, with a mark on the nodes that make such gradients. Invariant: a marked
node sums rows of a gradient into a table that is mostly zeros, at the end of the graph. ONNX has no op for it: a
session would fill the table with zeros and copy all of it once more to add a few rows.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from smelt.frontends.torch_compile._torch import hint

BETTER_IN_TORCH: Final = "smelt.better_in_torch"  # in the meta of a node that could leave torch: why it does not
_aten: Final = torch.ops.aten
_UNKNOWN_SIZE: Final = 128


def keep_table_gradients(module: GraphModule) -> None:
    """Mark them in place."""
    for node in module.graph.nodes:
        if node.target is _aten.embedding_dense_backward.default and _is_mostly_zero(node):
            node.meta[BETTER_IN_TORCH] = "sums a few rows into a table of zeros"


def _is_mostly_zero(node: Node) -> bool:
    indices: Any = node.args[1]
    rows: Any = node.args[2]
    counted = prod(hint(size, _UNKNOWN_SIZE) for size in indices.meta["val"].shape)
    return hint(rows.meta["val"] if isinstance(rows, Node) else rows, _UNKNOWN_SIZE) > counted
