"""In-place ops -> functional ones, where that is plain.

Input: a graph of torch.export, which may hold in-place ops. Output: the same graph without them, or the news that it
needs torch's full functionalization. Invariant: of the memory that is overwritten, no view made before is read
afterwards, and it is no input's; so what reads it later may read the op's result, put back in its place, instead.
"""

# What torch hands over is not annotated.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.fx
from torch._ops import OpOverload


def made_functional(graph: torch.fx.Graph) -> bool:
    """Replace in-place ops; False, and a graph of no more use, when one of them needs more than that."""
    return all(_rewritten(node) for node in list(graph.nodes) if _writes(node))


def _rewritten(node: torch.fx.Node) -> bool:
    functional = _counterpart(node.target)
    chain = _chain(node.args[0])
    if functional is None or not chain or _seen_elsewhere(node, chain):
        return False
    base = chain[0]
    later = [user for user in base.users if user > node]
    node.target = functional
    whole = _put_back(node, chain)
    for user in later:
        user.replace_input_with(base, whole)
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


def _chain(target: Any) -> list[torch.fx.Node]:
    """From a tensor of its own memory, over views that can be put back, to what is written; empty for anything else."""
    chain: list[torch.fx.Node] = []
    while isinstance(target, torch.fx.Node) and _name(target) in _BACK and not target.kwargs:
        chain.append(target)
        target = target.args[0]
    if not isinstance(target, torch.fx.Node) or target.op != "call_function" or _is_view(target):
        return []
    return [target, *reversed(chain)]


def _seen_elsewhere(node: torch.fx.Node, chain: list[torch.fx.Node]) -> bool:
    """Whether a view from before the write is read after it, or the written view itself."""
    if len(chain) > 1 and node.users:
        return True
    pending = [chain[0]]
    while pending:
        views = [user for user in pending.pop().users if user < node and _is_view(user)]
        if any(user > node for view in views for user in view.users):
            return True
        pending += views
    return False


def _put_back(value: torch.fx.Node, chain: list[torch.fx.Node]) -> torch.fx.Node:
    """The whole tensor after `value` has been written through the chain's views."""
    origin = value
    for source, view in reversed(list(pairwise(chain))):
        target, takes_source = _BACK[_name(view)]
        arguments = (source, value, *view.args[1:]) if takes_source else (value, *view.args[1:])
        with value.graph.inserting_after(value):
            value = value.graph.call_function(target, arguments)
        value.meta = {**origin.meta, "val": source.meta["val"]}
    return value


def _name(node: torch.fx.Node) -> str:
    return node.target.name() if isinstance(node.target, OpOverload) else ""


# By view: what gives the source with new values where the view looks, and whether that takes the source.
_aten = torch.ops.aten
_BACK: dict[str, tuple[OpOverload, bool]] = {
    "aten::slice.Tensor": (_aten.slice_scatter.default, True),
    "aten::select.int": (_aten.select_scatter.default, True),
    "aten::unsqueeze": (_aten.squeeze.dim, False),
    "aten::transpose.int": (_aten.transpose.int, False),
}


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
