"""Calls of a graph whose sizes are free.

Input: a compiled graph, the function that AOTAutograd made of it, and the integers that decide its sizes. Output: a
function for Dynamo to call. Invariant: sizes that come again get a function of their own, for which all is fixed; every
other call, and whatever fails, goes through AOTAutograd's wrappers. Only so many functions are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

from smelt.frontends.torch_compile._torch import mark_of
from smelt.frontends.torch_compile.parts.part import CompiledPart
from smelt.runtime import runner_of

_AGAIN: Final = 4  # writing a function takes as long as ten calls
_MOST: Final = 64
_REMEMBERED: Final = 1024


class FreeSizes:
    """The functions of one graph, by the integers among its arguments."""

    def __init__(
        self, graph: Any, integers: Sequence[int], free: Sequence[set[int]], wrapped: Callable[..., Any]
    ) -> None:
        self._graph = graph
        self._key = itemgetter(*integers)
        self._marks = [mark_of(axes) for axes in free]
        self._wrapped = wrapped
        self._functions: dict[Any, Callable[[Sequence[Any]], list[Any]]] = {}
        self._seen: dict[Any, int] = {}
        getattr(graph, "refreshed", []).append(self.forget)

    def function(self) -> Callable[..., Any]:
        """What Dynamo calls."""
        functions, key = self._functions, self._key

        def run(*args: Any) -> Sequence[Any]:
            found = functions.get(key(args))
            if found is None:
                return self._in_general(args)
            try:
                return found(args)
            except Exception:  # it is reported by the call that follows, which fails in the same way
                self.forget()
                return self._wrapped(*args)

        return run

    def forget(self) -> None:
        """Every size goes through the wrappers again."""
        self._functions.clear()
        self._seen.clear()

    def _in_general(self, args: Sequence[Any]) -> Any:
        results, key = self._wrapped(*args), self._key(args)
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen[key] = count = self._seen.get(key, 0) + 1
        if count == _AGAIN:
            self._write(key, args)
        return results

    def _write(self, key: Any, args: Sequence[Any]) -> None:
        only = self._only()
        runner = None if only is None else runner_of(only[0].call)
        if only is None or runner is None or runner.sizes is None or len(runner.fetches) != len(self._marks):
            return
        part, places = only
        made = runner.at([args[place] for place in places], places, self._marks)
        if len(self._functions) >= _MOST:
            self.forget()
        self._functions[key] = made.call
        now = self._only()
        if now is None or now[0] is not part:  # parameters were to be read again in the meantime
            self.forget()

    def _only(self) -> tuple[CompiledPart, list[int]] | None:
        """The part that makes all results, and where its arguments lie among the graph's, if there is such a part."""
        return getattr(self._graph, "only", None)
