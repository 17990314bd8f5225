"""Random nodes freed from the values whose shapes they borrow.

Input: a functional graph. Output: the same graph, where a node that draws random numbers "like" a tensor depends on
that tensor's sizes alone. Invariant: the same numbers are drawn in the same order, so results are torch's own for the
same seed. Without this, every dropout would cut a graph in two.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import sympy
import torch
from torch.fx import Graph, GraphModule, Node

_aten: Final = torch.ops.aten
STAYS: Final = "smelt.stays"  # in the meta of a node that costs nothing in torch: why it stays there


_SERVES: Final = "serves a random node"


def free_random_nodes(module: GraphModule) -> None:
    """Change the graph in place."""
    sizes = _Sizes(module.graph)
    changed = False
    for node in list(module.graph.nodes):
        rule = _RULES.get(node.target)
        if rule is not None and _is_plain(node.args[0]):
            changed |= rule(node, sizes)
    if changed:
        module.graph.eliminate_dead_code()
        module.recompile()


def _is_plain(source: Any) -> bool:
    """Numbers are drawn in memory order, so only a row-major tensor may be stood in for."""
    value = source.meta.get("val") if isinstance(source, Node) else None
    return isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.is_contiguous()


def _dropout(node: Node, sizes: _Sizes) -> bool:
    """`native_dropout(x, p, train)`: the mask is drawn as torch draws it; scaling `x` by it is arithmetic."""
    source: Any = node.args[0]
    chance, *rest = node.args[1:]
    if not isinstance(chance, float) or not 0 < chance < 1 or rest not in ([True], [None]):
        return False
    graph, value = node.graph, source.meta["val"]
    shape = sizes.of(value, node)
    if shape is None:
        return False
    with graph.inserting_before(node):
        options = {"dtype": torch.bool, "device": value.device}
        room = graph.call_function(_aten.empty.memory_format, (shape,), options)
        mask = graph.call_function(_aten.bernoulli.p, (room, 1 - chance))
        kept = graph.call_function(_aten.mul.Tensor, (source, mask))
        scaled = graph.call_function(_aten.mul.Scalar, (kept, 1 / (1 - chance)))
    mask.meta = {**node.meta, "val": node.meta["val"][1]}
    room.meta = {"val": mask.meta["val"], STAYS: _SERVES}
    kept.meta = scaled.meta = {**node.meta, "val": node.meta["val"][0]}
    for user in list(node.users):
        user.replace_all_uses_with(scaled if user.args[1] == 0 else mask)
        graph.erase_node(user)
    graph.erase_node(node)
    return True


def _like(plain: Any) -> Callable[[Node, _Sizes], bool]:
    """`rand_like(x)` becomes `rand(sizes)`."""

    def rule(node: Node, sizes: _Sizes) -> bool:
        value = node.meta["val"]
        shape = sizes.of(value, node) if value.is_contiguous() else None
        if shape is None or len(node.args) != 1:
            return False
        with node.graph.inserting_before(node):
            made = node.graph.call_function(plain, (shape,), {"dtype": value.dtype, "device": value.device})
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        node.graph.erase_node(node)
        return True

    return rule


def _chance(node: Node, sizes: _Sizes) -> bool:
    """`bernoulli.p(x, p)` looks at no element of `x`."""
    value = node.meta["val"]
    shape = sizes.of(value, node)
    if shape is None:
        return False
    with node.graph.inserting_before(node):
        options = {"dtype": value.dtype, "device": value.device}
        made = node.graph.call_function(_aten.empty.memory_format, (shape,), options)
    made.meta = {"val": value, STAYS: _SERVES}
    node.replace_input_with(node.args[0], made)  # pyright: ignore[reportArgumentType]
    return True


_RULES: Final[dict[Any, Callable[[Node, Any], bool]]] = {
    _aten.native_dropout.default: _dropout,
    _aten.rand_like.default: _like(_aten.rand.default),
    _aten.randn_like.default: _like(_aten.randn.default),
    _aten.bernoulli.p: _chance,
}


class _Sizes:
    """Sizes as arguments of nodes: numbers, or nodes made of the graph's own arguments."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._known: dict[str, Node] = {}
        self._tensors: dict[str, tuple[Node, int]] = {}
        for node in graph.nodes:
            if node.op == "placeholder":
                self._learn(node)

    def _learn(self, node: Node) -> None:
        value: Any = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            self._known.setdefault(str(value.node.expr), node)  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
        for axis, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            expr: Any = getattr(getattr(size, "node", None), "expr", None)
            if expr is not None:
                self._tensors.setdefault(str(expr), (node, axis))

    def of(self, value: torch.Tensor, before: Node) -> list[Any] | None:
        """The sizes of `value`; None when one is not a sum or product of the arguments' sizes."""
        found: list[Any] = []
        with self.graph.inserting_before(before):
            for size in cast("Sequence[Any]", value.shape):
                made = size if isinstance(size, int) else self._node(size.node.expr)
                if made is None:
                    return None
                found.append(made)
        return found

    def _node(self, expr: Any) -> Any:
        if isinstance(expr, sympy.Integer):
            return int(expr)
        name = str(expr)
        if name in self._known:
            return self._known[name]
        if name in self._tensors:
            source, axis = self._tensors[name]
            made = self.graph.call_function(_aten.sym_size.int, (source, axis))
            made.meta = {"val": source.meta["val"].shape[axis]}
            return made
        operation = operator.mul if isinstance(expr, sympy.Mul) else operator.add
        if not isinstance(expr, (sympy.Mul, sympy.Add)):
            return None
        parts = [self._node(part) for part in expr.args]
        return None if any(part is None for part in parts) else self._joined(operation, parts)

    def _joined(self, operation: Callable[[Any, Any], Any], parts: list[Any]) -> Any:
        total = parts[0]
        for part in parts[1:]:
            values = [p.meta["val"] if isinstance(p, Node) else p for p in (total, part)]
            total = self.graph.call_function(operation, (total, part))
            total.meta = {"val": operation(*values)}
        return total
