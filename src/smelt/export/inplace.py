"""In-place ops -> functional ones, where that is plain.

Input: a graph of torch.export, which may hold in-place ops. Output: the same graph without them, or the news that it
needs torch's full functionalization. Invariant: the memory that is overwritten is no input's, and all that reads it
later reads the op's result, put back in its place, instead; views from before are made anew.
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
    if functional is None or not chain:
        return False
    base, written = chain[0], chain[-1]
    views = _older_views(base, node)
    later = {value: [user for user in value.users if user > node] for value in (base, *views)}
    results = [] if written is base else list(node.users)
    again = _read_again(views, later, written if results else None)
    if not all(_name(view) in _SURE_VIEWS for view in again):
        return False
    node.target = functional
    anew = _made_anew(again, base, _put_back(node, chain))
    for value, users in later.items():
        for user in users:
            user.replace_input_with(value, anew[value])
    for user in results:
        user.replace_input_with(node, anew[written])
    return True


def _older_views(base: torch.fx.Node, node: torch.fx.Node) -> list[torch.fx.Node]:
    """Views of the base, and views of those, that were made before the write; each after what it looks at."""
    found: dict[torch.fx.Node, None] = {}
    pending = [base]
    while pending:
        views = [user for user in pending.pop().users if user < node and _is_view(user) and user not in found]
        found.update(dict.fromkeys(views))
        pending += views
    return sorted(found)


def _read_again(
    views: list[torch.fx.Node], later: dict[torch.fx.Node, list[torch.fx.Node]], written: torch.fx.Node | None
) -> list[torch.fx.Node]:
    """The views that are read after the write, and those that lead to them."""
    found: set[torch.fx.Node] = set()
    for view in reversed(views):
        if view is written or later[view] or any(user in found for user in view.users):
            found.add(view)
    return [view for view in views if view in found]


def _made_anew(
    views: list[torch.fx.Node], base: torch.fx.Node, whole: torch.fx.Node
) -> dict[torch.fx.Node, torch.fx.Node]:
    """The base and views of it after the write, by what they were before."""
    anew, last = {base: whole}, whole
    for view in views:
        with last.graph.inserting_after(last):
            last = anew[view] = last.graph.node_copy(view, lambda source: anew.get(source, source))
    return anew


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
# Views whatever the strides are: made anew of a tensor in another memory order, they show the same elements.
_SURE_VIEWS = frozenset((
    *_BACK, "aten::permute", "aten::t", "aten::expand", "aten::squeeze.dim", "aten::alias", "aten::detach",
    "aten::diagonal", "aten::unfold",
))  # fmt: skip


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
