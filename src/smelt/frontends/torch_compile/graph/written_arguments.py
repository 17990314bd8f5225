"""Arguments that an inference graph writes, such as a KV cache of fixed length.

Input: a graph of AOTAutograd's whose last calls copy results into arguments. Output: the graph with these as further
results, and a function that sees to it that they end up in the arguments. Invariant: a result that is its argument with
some elements replaced, and whose argument nothing else reads, may be computed in the argument's own memory: it is then
neither copied nor allocated. A call that fails half-way may be made again: the same elements are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import torch
from torch.fx import GraphModule, Node

Boxed = Callable[[list[Any]], Sequence[Any]]
Write = tuple[int, int]  # the place of an argument, and of the result that belongs there
REPLACES: Final = "replaces"  # in a node's meta: its result may lie in the memory of its first argument

_aten: Final = torch.ops.aten
_REPLACING: Final = frozenset(
    (_aten.index_copy.default, _aten.slice_scatter.default, _aten.select_scatter.default, _aten.scatter.src)
)


def take_writes(graph: GraphModule) -> list[Write]:
    """Make results of what is copied into arguments; tell which belongs where."""
    nodes = list(graph.graph.nodes)
    places = {node: at for at, node in enumerate(n for n in nodes if n.op == "placeholder")}
    copies = [n for n in nodes if n.op == "call_function" and n.target is _aten.copy_.default and n.args[0] in places]
    if not copies:
        return []
    output = nodes[-1]
    results = list(cast("Sequence[Any]", output.args[0]))
    writes: list[Write] = []
    for copy in copies:
        target, source = cast("tuple[Node, Any]", copy.args[:2])
        copy.replace_all_uses_with(source)
        results = [source if result is copy else result for result in results]
        graph.graph.erase_node(copy)
        _mark(target, source)
        writes.append((places[target], len(results)))
        results.append(source)
    output.args = (tuple(results),)
    graph.recompile()
    return writes


def _mark(target: Node, source: Any) -> None:
    alone = isinstance(source, Node) and list(target.users) == [source]
    if alone and source.target in _REPLACING and source.args[0] is target:
        source.meta[REPLACES] = True


def replaced(node: Any) -> Node | None:
    """The placeholder in whose memory the node's result may lie."""
    if not isinstance(node, Node) or not node.meta.get(REPLACES):
        return None
    target = node.args[0]
    known = isinstance(target, Node) and target.op == "placeholder" and list(target.users) == [node]
    return cast("Node", target) if known else None


def with_writes(function: Boxed, writes: Sequence[Write]) -> Boxed:
    """The function with the results in place that belong into arguments, and without them."""
    if not writes:
        return function
    first = min(result for _, result in writes)

    def run(args: list[Any]) -> Sequence[Any]:
        targets = [args[place] for place, _ in writes]
        results = function(args)
        for target, (_, at) in zip(targets, writes, strict=True):
            if results[at].data_ptr() != target.data_ptr():
                target.copy_(results[at])
        return results[:first]

    run._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]
    return run
