"""Python's garbage collector during long work on many live objects.

Input: a piece of work, as a `with` block or a decorated function. Output: nothing. Invariant: the thresholds that the
process had before are back when the last such piece of work ends, whichever thread it runs in.

The objects of a graph live as long as its compilation. With the thresholds that Python starts with, looking for garbage
among them takes more than a quarter of the time that a model of 100,000 nodes takes.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

# Young objects are looked at once per million that stay; old ones once per hundred million.
_RARE: Final = (100_000, 10, 100)
_lock: Final = threading.Lock()
_before: Final[list[tuple[int, int, int]]] = []  # of each piece of work under way


@contextmanager
def rare_collections() -> Generator[None]:
    """Look for garbage rarely."""
    with _lock:
        _before.append(gc.get_threshold())
        if gc.get_threshold()[0] > 0:  # else it is switched off
            gc.set_threshold(*map(max, _RARE, gc.get_threshold()))
    try:
        yield
    finally:
        with _lock:
            first = _before[0]
            _before.pop()
            if not _before:
                gc.set_threshold(*first)
