"""Parameters as constants.

Input: an inference graph and the tensors that Dynamo gave it. Output: a function that holds the parameters as they were
when it was made. Invariant: a tensor is frozen only where its place in the graph is certain; `refresh` makes the next
call read the parameters again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import torch
from torch.fx import GraphModule

from smelt.frontends.torch_compile.lower import Boxed, lower
from smelt.frontends.torch_compile.parts.part import CompiledPart, Fixed
from smelt.frontends.torch_compile.parts.sessions import Settings
from smelt.frontends.torch_compile.parts.weights import forget_panels

_live: Final[weakref.WeakSet[FrozenGraph]] = weakref.WeakSet()


class FrozenGraph:
    """A graph compiled with its parameters, made again on demand."""

    _boxed_call = True

    def __init__(
        self, graph: GraphModule, settings: Settings, parameters: Mapping[str, torch.Tensor],
        guarded: Collection[str] = (),
    ) -> None:  # fmt: skip
        self._graph = graph
        self._settings = settings
        self._guarded = guarded
        self._parameters = {name: weakref.ref(tensor) for name, tensor in parameters.items()}
        self._call: Boxed | None = self._made()
        self.refreshed: list[Callable[[], None]] = []
        _live.add(self)

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        if self._call is None:
            self._call = self._made()
        return self._call(args)

    @property
    def whole(self) -> CompiledPart | None:
        """The part that is all of the graph; None while the parameters are to be read again."""
        return None if self._call is None else getattr(self._call, "whole", None)

    @property
    def only(self) -> tuple[CompiledPart, list[int]] | None:
        """The part that makes all results, and the places of its arguments; None while they are to be read again."""
        return None if self._call is None else getattr(self._call, "only", None)

    def _made(self) -> Boxed:
        tensors = {name: reference() for name, reference in self._parameters.items()}
        constants = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        return lower(self._graph, "inference", self._settings, Fixed(constants, guarded=self._guarded))

    def refresh(self, tensors: set[int] | None) -> None:
        """Read the parameters again at the next call, if one of them is among `tensors` (all when None)."""
        mine = {id(reference()) for reference in self._parameters.values()}
        if tensors is None or mine & tensors:
            self._call = None
            for forget in self.refreshed:
                forget()


def frozen_parameters(graph: GraphModule, static: Sequence[int], given: Sequence[Any]) -> dict[str, torch.Tensor]:
    """The parameters by placeholder. Nothing when the graph's arguments are not those that Dynamo gave."""
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    if len(placeholders) != len(given):
        return {}
    found = {placeholders[at].name: given[at] for at in static if _fits(placeholders[at].meta.get("val"), given[at])}
    return found if len(found) == len(static) else {}


def _fits(traced: Any, tensor: Any) -> bool:
    if not isinstance(traced, torch.Tensor) or not isinstance(tensor, torch.Tensor):
        return False
    same_kind = traced.dtype == tensor.dtype and traced.device == tensor.device
    return same_kind and traced.shape == tensor.shape and traced.stride() == tensor.stride()


def watch(holder: Any) -> None:
    """Let `refresh` reach an object that holds weights, by its method of that name, as long as it lives."""
    _live.add(holder)


def refresh(model: torch.nn.Module | None = None) -> None:
    """Make compiled functions read a model's parameters again, or every model's.

    Needed after a change that torch does not count: a write through `.data`, through numpy, or any change of a
    parameter that `freeze=True` made a constant.
    """
    if model is None:
        forget_panels(None)
        for graph in list(_live):
            graph.refresh(None)
        return
    tensors = [*model.parameters(), *model.buffers()]
    forget_panels({tensor.data_ptr() for tensor in tensors})
    for graph in list(_live):
        graph.refresh({id(tensor) for tensor in tensors})
