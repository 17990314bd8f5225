"""Sizes at which a model is timed besides the usual ones.

Input: the declared sizes of inputs, and the feeds of a usual call. Output: feeds of the same contents at few other
sizes. Invariant: what a user gave is not changed; needs numpy alone.

    smaller: a quarter of all free sizes but the first, or of that where there is no other; larger: the first threefold
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from smelt.check.bindings import Dims, free_sizes, resized

Array = np.ndarray[Any, Any]

_SMALLER: Final = 4
_LARGER: Final = 3
_LEAST: Final = 8  # a quarter of less is another model's work: of launches and copies alone


@dataclass(frozen=True)
class Call:
    """`sizes` tells the free sizes in words; empty for the usual call."""

    sizes: str
    feeds: Mapping[str, Array]

    @property
    def elements(self) -> int:
        return sum(array.size for array in self.feeds.values())


def other_calls(inputs: Mapping[str, Dims | None], feeds: Mapping[str, Array]) -> Iterator[Call]:
    usual = free_sizes(inputs, feeds)
    names = list(usual)
    if not names:
        return
    rest = names[1:] or names
    smaller = {name: usual[name] // _SMALLER for name in rest if usual[name] >= _LEAST}
    for changed in (smaller, {names[0]: _LARGER * usual[names[0]]}):
        if changed:
            sizes = {**usual, **changed}
            told = ", ".join(f"{name} = {size}" for name, size in sizes.items())
            yield Call(told, resized(inputs, feeds, changed))
