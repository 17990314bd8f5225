"""What is used of torch's private parts, in one place.

Input: nothing. Output: the names. Invariant: no other file of this folder reaches into a private module of torch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.source import LocalSource
from torch._functorch._aot_autograd import runtime_wrappers
from torch._functorch._aot_autograd.schemas import OutputType, SubclassCreationMeta
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx import GraphModule, Node
from torch.utils import _python_dispatch
from torch.utils._sympy.printers import PythonPrinter

_torch: Final = cast("Any", torch)
_functorch: Final[Any] = _torch._functorch.config
OpOverload: Final[Any] = _torch._ops.OpOverload
HigherOrderOperator: Final[Any] = _torch._ops.HigherOrderOperator
dynamo: Final[Any] = _torch._dynamo
tree_leaves: Final[Any] = _torch.utils._pytree.tree_leaves
no_modes: Final[Any] = cast("Any", _python_dispatch)._disable_current_modes
_mark: Final[Any] = getattr(runtime_wrappers, "mark_dynamo_propagated_dynamic_indices", None)


def is_random(node: Node) -> bool:
    """Whether a call draws from torch's random state. Attention with a dropout of zero does not."""
    target: Any = node.target
    if not isinstance(target, OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    names = [argument.name for argument in target._schema.arguments]
    if "dropout_p" not in names:
        return True
    place = names.index("dropout_p")
    chance = node.args[place] if place < len(node.args) else node.kwargs.get("dropout_p", 0.0)
    return not (isinstance(chance, (int, float)) and chance == 0)


def static_inputs() -> list[int]:
    """Places of the arguments that are parameters and buffers, in the inference graph that is being compiled."""
    metadata = forward_metadata()
    return [] if metadata is None else list(metadata.static_input_indices)


def forward_metadata() -> Any:
    """What AOTAutograd knows about the graph that is being compiled."""
    context = _torch._guards.TracingContext.try_get()
    return None if context is None else context.fw_metadata


def compiled_before() -> bool:
    """Whether Dynamo compiles a function that it has compiled already."""
    current = _torch._guards.CompileContext.current_compile_id()
    return bool(getattr(current, "frame_compile_id", 0))


def frame_arguments(graph: GraphModule) -> list[int]:
    """Places of the graph's arguments that are arguments of the function which Dynamo compiled.

    Dynamo compares all it knows of such a tensor before every call. Tensors found elsewhere, say as an attribute, it
    compares only where what holds them has changed.
    """
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    return [at for at, node in enumerate(placeholders) if _is_argument(getattr(node, "_dynamo_source", None))]


def _is_argument(source: object) -> bool:
    return isinstance(source, LocalSource) and source.is_input and not source.is_derefed_cell_contents


def plain_results(metadata: Any, arguments: int) -> bool:
    """Whether a graph only makes plain tensors, so that AOTAutograd has nothing to do after a call but to mark those
    of free sizes.

    False as well where a release of PyTorch says less about its graphs than this has to know.
    """
    try:
        return _only_plain(metadata, arguments)
    except AttributeError:
        return False


def _only_plain(metadata: Any, arguments: int) -> bool:
    if metadata is None or len(metadata.input_info) != arguments or _functorch.functionalize_rng_ops:
        return False
    effects = (
        metadata.mutated_inp_runtime_indices, metadata.mutated_graph_handled_indices, metadata.num_intermediate_bases,
        metadata.tokens, metadata.grad_enabled_mutation is not None, metadata.num_graphsafe_rng_states,
        metadata.act_input_indices,
    )  # fmt: skip
    wrapped = (*metadata.subclass_inp_meta, *metadata.subclass_fw_graph_out_meta)
    if any(effects) or any(isinstance(entry, SubclassCreationMeta) for entry in wrapped):
        return False
    return all(_is_plain(info) for info in metadata.output_info)


def _is_plain(info: Any) -> bool:
    tensor = isinstance(info.raw_type, type) and issubclass(info.raw_type, torch.Tensor)
    own = info.output_type in (OutputType.non_alias, OutputType.unsafe_view_alias)
    return tensor and own and not info.requires_grad


def free_axes(metadata: Any) -> list[set[int]]:
    """The axes of each result whose sizes are not fixed."""
    return [set(info.dynamic_dims or ()) for info in metadata.output_info]


def mark_of(axes: set[int]) -> Callable[[Any], None] | None:
    """What AOTAutograd does with a result of free sizes: Dynamo keeps them free if it gets the tensor back."""
    return partial(_mark, dims=axes) if axes else None


def marks_are_known() -> bool:
    """Whether this release of PyTorch marks such results in the way that is known here."""
    return _mark is not None


def is_mutable(target: Any) -> bool:
    """Whether a call writes to its arguments."""
    return isinstance(target, OpOverload) and bool(target._schema.is_mutable)


def is_view(target: Any) -> bool:
    """Whether a call's result lies in the memory of its first argument."""
    if not isinstance(target, OpOverload) or is_mutable(target):
        return False
    arguments = target._schema.arguments
    return bool(arguments) and arguments[0].alias_info is not None


def visible_results(kind: str) -> int | None:
    """How many leading results of the graph that is being compiled reach the program; None for all of them."""
    if kind == "inference":
        return None
    return getattr(forward_metadata(), "num_forward_returns", 0) if kind == "forward" else 0


def hint(size: Any, otherwise: int) -> int:
    """The number that tracing saw, for a symbolic size."""
    found = example_of(size)
    return otherwise if found is None else found


def example_of(size: Any) -> int | None:
    """The number that tracing saw, for a symbolic size; None where it depends on data."""
    if isinstance(size, int):
        return size
    return int(size.node.hint) if size.node.has_hint() else None


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the tensor is row-major whatever its sizes are. Asks nothing that only data can answer."""
    return bool(_torch._prims_common.is_contiguous_or_false(tensor))


__all__ = [
    "HigherOrderOperator",
    "OpOverload",
    "PythonPrinter",
    "aot_autograd",
    "dynamo",
    "example_of",
    "forward_metadata",
    "frame_arguments",
    "free_axes",
    "hint",
    "is_dense",
    "is_mutable",
    "is_random",
    "is_view",
    "mark_of",
    "marks_are_known",
    "min_cut_rematerialization_partition",
    "no_modes",
    "plain_results",
    "static_inputs",
    "tree_leaves",
    "visible_results",
]
