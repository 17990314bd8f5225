"""In-place ops -> functional ones, where that is plain.

Input: a graph of torch.export, which may hold in-place ops. Output: the same graph without them, or the news that it
needs torch's full functionalization. Invariant: a value that is overwritten has no view that is read afterwards, and is
no input; so reading the op's result in its place is the same program.
"""

# What torch hands over is not annotated.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch._ops import OpOverload


def made_functional(graph: torch.fx.Graph) -> bool:
    """Replace in-place ops; False, with the graph untouched, when one of them needs more than that."""
    plan: list[tuple[torch.fx.Node, OpOverload]] = []
    for node in graph.nodes:
        if not _writes(node):
            continue
        functional = _counterpart(node.target)
        if functional is None or not _plain(graph, node):
            return False
        plan.append((node, functional))
    places = {node: index for index, node in enumerate(graph.nodes)}
    for node, functional in plan:
        target: Any = node.args[0]
        node.target = functional
        for user in list(target.users):
            if places[user] > places[node]:
                user.replace_input_with(target, node)
    return True


def _writes(node: torch.fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and bool(node.target._schema.is_mutable)  # pyright: ignore[reportPrivateUsage]


def _counterpart(target: Any) -> OpOverload | None:
    """aten.add_.Tensor -> aten.add.Tensor, for ops that write to their first argument alone."""
    arguments = target._schema.arguments
    written = [index for index, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write]
    base, _, overload = target.name().partition("::")[2].partition(".")
    if written != [0] or not base.endswith("_"):
        return None
    packet = getattr(getattr(torch.ops, target.namespace), base[:-1], None)
    found = getattr(packet, overload or "default", None)
    return found if isinstance(found, OpOverload) else None


def _plain(graph: torch.fx.Graph, node: torch.fx.Node) -> bool:
    """Whether nothing else sees the memory that the node overwrites."""
    target = node.args[0]
    if not isinstance(target, torch.fx.Node) or target.op != "call_function" or _is_view(target):
        return False
    places = {n: index for index, n in enumerate(graph.nodes)}
    pending = [user for user in target.users if _is_view(user)]
    while pending:
        view = pending.pop()
        if any(places[user] > places[node] for user in view.users):
            return False
        pending += [user for user in view.users if _is_view(user)]
    return True


def _is_view(node: torch.fx.Node) -> bool:
    """Whether a node's result may share memory with an argument; in doubt, yes."""
    target = node.target
    if not isinstance(target, OpOverload):
        return node.op == "call_function"
    if _writes(node):
        return False
    schema = target._schema  # pyright: ignore[reportPrivateUsage]
    shares = any(result.alias_info is not None for result in schema.returns)
    return shares or target.name() in _MAYBE_VIEWS


_MAYBE_VIEWS = frozenset((
    "aten::reshape", "aten::contiguous", "aten::flatten.using_ints", "aten::to.dtype", "aten::to.device",
    "aten::to.dtype_layout", "aten::to.other", "aten::type_as", "aten::view_as", "aten::reshape_as",
    "aten::dropout", "aten::feature_dropout", "aten::chunk", "aten::tensor_split.sections", "aten::movedim.int",
    "aten::movedim.intlist", "aten::unflatten.int", "aten::expand_as", "aten::broadcast_to", "aten::narrow",
    "aten::positive", "aten::resolve_conj", "aten::resolve_neg", "aten::mT", "aten::mH", "aten::numpy_T",
    "aten::swapaxes", "aten::swapdims", "aten::ravel", "aten::einsum", "aten::atleast_1d", "aten::atleast_2d",
    "aten::atleast_3d", "aten::squeeze", "aten::matrix_H", "aten::adjoint", "aten::real", "aten::imag",
))  # fmt: skip
