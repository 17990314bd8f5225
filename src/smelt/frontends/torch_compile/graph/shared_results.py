"""Results that lie in one piece of memory.

Input: a functional graph, and how many of its leading results reach the program that called it. Output: the same graph,
where views of one tensor that are several results are made by torch, after the session that makes the tensor.
Invariant: results share memory where torch's own do; what else takes such a view still takes it inside of a session.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final, cast

from torch.fx import GraphModule, Node

from smelt.frontends.torch_compile._torch import is_view
from smelt.frontends.torch_compile.graph.random_nodes import STAYS

_SHARES: Final = "shares memory with another result"


def keep_shared(module: GraphModule, visible: int | None = None) -> None:
    """Change the graph in place. `visible`: the count of results that matter; all of them for None."""
    output = next(node for node in reversed(module.graph.nodes) if node.op == "output")
    results = list(cast("Sequence[Any]", output.args[0]))
    shared = _shared([_path(result) for result in results[:visible] if isinstance(result, Node)])
    if not shared:
        return
    copies: dict[Node, Node] = {}
    for path in shared:
        for node in path[1:]:
            if node not in copies:
                copies[node] = _copied(node, copies, output)
    output.args = (tuple(copies.get(result, result) for result in results),)
    module.graph.eliminate_dead_code()
    module.recompile()


def _path(result: Node) -> tuple[Node, ...]:
    """From the tensor whose memory it is, over views of views, to the result."""
    path = [result]
    while _is_view(path[-1]):
        path.append(cast("Node", path[-1].args[0]))
    return tuple(reversed(path))


def _is_view(node: Node) -> bool:
    source = node.args[0] if node.args else None
    if not isinstance(source, Node):
        return False
    return is_view(source.target) if node.target is operator.getitem else is_view(node.target)


def _shared(paths: Sequence[tuple[Node, ...]]) -> list[tuple[Node, ...]]:
    """Paths that begin where another one does. What begins with an argument is AOTAutograd's to restore."""
    different = dict.fromkeys(paths)
    starts = [path[0] for path in different]
    return [path for path in different if path[0].op == "call_function" and starts.count(path[0]) > 1]


def _copied(node: Node, copies: dict[Node, Node], output: Node) -> Node:
    with node.graph.inserting_before(output):
        made = node.graph.node_copy(node, lambda source: copies.get(source, source))
    made.meta = {**node.meta, STAYS: _SHARES}
    return made
