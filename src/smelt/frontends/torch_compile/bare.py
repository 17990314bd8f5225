"""An inference graph that needs nothing of AOTAutograd at run time.

Input: what AOTAutograd found out about a graph, the function that it wraps and the one it made. Output: a function for
Dynamo to call. Invariant: AOTAutograd's wrappers are left out only where they would do nothing: no argument is
written, no result shares memory with another tensor or is anything but a plain tensor of fixed sizes. Whatever fails is
called again through them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from smelt.frontends.torch_compile._torch import forward_metadata, plain_results
from smelt.frontends.torch_compile.part import CompiledPart


class Whole(Protocol):
    """A lowered graph. `whole` is the part that takes its arguments and gives its results, if there is such a part."""

    whole: CompiledPart | None


class Bare:
    """Watches AOTAutograd compile one graph for inference. `checked`: the arguments that Dynamo looks at each time."""

    def __init__(self, arguments: int, checked: Sequence[int] = ()) -> None:
        self._arguments = arguments
        self._checked = checked
        self._graphs: list[Any] = []

    def guarded(self, names: Sequence[str], static: Sequence[int]) -> list[str]:
        """Placeholders whose dtypes, sizes and strides Dynamo has compared before a call. A parameter's it may not."""
        return [names[at] for at in self._checked if at not in static] if self._fits(len(names)) else []

    def watch(self, graph: Any, placeholders: int) -> Any:
        """The graph itself, remembered if its calls need no wrapper."""
        self._graphs.append(graph if self._fits(placeholders) else None)
        return graph

    def _fits(self, placeholders: int) -> bool:
        return placeholders == self._arguments and plain_results(forward_metadata(), self._arguments)

    def function(self, wrapped: Callable[..., Any]) -> Callable[..., Any]:
        """The graph without its wrappers; `wrapped` where they matter."""
        if len(self._graphs) != 1 or getattr(self._graphs[0], "whole", None) is None:
            return wrapped
        graph: Whole = self._graphs[0]

        def run(*args: Any) -> Sequence[Any]:
            part = graph.whole
            if part is not None:
                try:
                    return part.call(args)
                except Exception:  # it is reported by the call that follows, which fails in the same way
                    return wrapped(*args)
            return wrapped(*args)

        return run
