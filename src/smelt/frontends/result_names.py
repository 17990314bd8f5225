"""Names for a module's results.

Input: the structure that a module returns, as a tree of torch.utils._pytree. Output: one name for each leaf, in order.
Invariant: names are those that the module's users know: keys and fields (`last_hidden_state`), places in sequences
(`past.0`); where there are none, `output` or `output_0`, `output_1`, ...
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast


def result_names(spec: Any) -> tuple[str, ...]:
    """A name for each leaf of the structure."""
    if spec.is_leaf():
        return ("output",)
    return tuple(f"output_{path}" if path[:1].isdigit() else path for path in _paths(spec, ""))


def _paths(spec: Any, before: str) -> Iterator[str]:
    if spec.is_leaf():
        yield before
        return
    for key, child in zip(_keys(spec), spec.children(), strict=True):
        yield from _paths(child, f"{before}.{key}" if before else key)


def _keys(spec: Any) -> list[str]:
    """Keys of mappings and of Hugging Face's outputs, fields of named tuples and dataclasses, else numbers."""
    count = spec.num_children
    context = spec.context
    if isinstance(context, type):
        context = getattr(context, "_fields", None)
    if isinstance(context, (list, tuple)) and context and isinstance(context[0], (list, tuple)):
        context = cast("Any", context[0])
    if isinstance(context, (list, tuple)):
        named = [str(key) for key in cast("list[object]", context) if isinstance(key, str) and key]
        if len(named) == count and len(set(named)) == count:
            return named
    return [str(place) for place in range(count)]
