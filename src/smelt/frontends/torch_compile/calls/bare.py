"""An inference graph that needs nothing of AOTAutograd at run time.

Input: what AOTAutograd found out about a graph, the function that it wraps and the one it made. Output: a function for
Dynamo to call. Invariant: AOTAutograd's wrappers are left out only where they would do nothing: no argument is
written, no result shares memory with another tensor or is anything but a plain tensor. Whatever fails is called again
through them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch.fx import Node

from smelt.frontends.torch_compile._torch import forward_metadata, free_axes, marks_are_known, plain_results
from smelt.frontends.torch_compile.calls.free_sizes import FreeSizes
from smelt.frontends.torch_compile.graph.symbols import deciding_integers
from smelt.frontends.torch_compile.parts.part import CompiledPart


class Whole(Protocol):
    """A lowered graph. `whole` is the part that takes its arguments and gives its results, if there is such a part."""

    whole: CompiledPart | None


class Bare:
    """Watches AOTAutograd compile one graph for inference. `checked`: the arguments that Dynamo looks at each time."""

    def __init__(self, arguments: int, checked: Sequence[int] = ()) -> None:
        self._arguments = arguments
        self._checked = checked
        self._graphs: list[Any] = []
        self._free: list[set[int]] = []
        self._integers: list[int] = []

    def guarded(self, names: Sequence[str], static: Sequence[int]) -> list[str]:
        """Placeholders whose dtypes, sizes and strides Dynamo has compared before a call. A parameter's it may not."""
        return [names[at] for at in self._checked if at not in static] if self._fits(len(names)) else []

    def watch(self, graph: Any, placeholders: Sequence[Node]) -> Any:
        """The graph itself, remembered if its calls need no wrapper."""
        fits = self._fits(len(placeholders))
        self._graphs.append(graph if fits else None)
        self._free = free_axes(forward_metadata()) if fits else []
        self._integers = deciding_integers(placeholders)
        return graph

    def _fits(self, placeholders: int) -> bool:
        return placeholders == self._arguments and plain_results(forward_metadata(), self._arguments)

    def function(self, wrapped: Callable[..., Any]) -> Callable[..., Any]:
        """The graph without its wrappers; `wrapped` where they matter."""
        if len(self._graphs) != 1 or self._graphs[0] is None:
            return wrapped
        if any(self._free):
            known = self._integers and marks_are_known()
            return FreeSizes(self._graphs[0], self._integers, self._free, wrapped).function() if known else wrapped
        return _past(self._graphs[0], wrapped)


def _past(graph: Any, wrapped: Callable[..., Any]) -> Callable[..., Any]:
    """The graph of fixed sizes itself, if it is one part."""
    if getattr(graph, "whole", None) is None:
        return wrapped
    known: Whole = graph

    def run(*args: Any) -> Sequence[Any]:
        part = known.whole
        if part is not None:
            try:
                return part.call(args)
            except Exception:  # it is reported by the call that follows, which fails in the same way
                return wrapped(*args)
        return wrapped(*args)

    return run
