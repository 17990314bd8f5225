"""A part that is compiled with the arguments of its first call.

Input: how to bind a part, given its inputs by name, and how to bind it without kernels. Output: a function for the
part's calls. Invariant: kernels of training graphs are verified on what the program really computes: made-up
activations and gradients fit no forward pass, and would condemn kernels that are right. What cannot be compiled so runs
in a plain session, with a note.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

Call = Callable[[Sequence[Any]], Sequence[Any]]
Feeds = dict[str, np.ndarray[Any, Any]]
Bind = Callable[[Feeds | None], Call]


class FirstCall:
    """Binds the part when it is called, once; `bound` is told of the function that serves all calls after that."""

    def __init__(
        self, named: Callable[[Sequence[Any]], Mapping[str, Any]], bind: Bind, plain: Callable[[], Call],
        bound: Callable[[Call], None], notes: list[str],
    ) -> None:  # fmt: skip
        self._named = named
        self._bind = bind
        self._plain = plain
        self._bound = bound
        self._notes = notes
        self._lock = threading.Lock()
        self._call: Call | None = None

    def __call__(self, args: Sequence[Any]) -> Sequence[Any]:
        with self._lock:
            if self._call is None:
                self._call = self._made(args)
                self._bound(self._call)
        return self._call(args)

    def _made(self, args: Sequence[Any]) -> Call:
        try:
            return self._bind(as_feeds(self._named(args)))
        except Exception as error:
            reason = f"no kernels, a plain session instead: {type(error).__name__}: {str(error)[:300]}"
            self._notes.append(reason)
            warnings.warn(f"smelt: {reason}", stacklevel=2)
            return self._plain()


def as_feeds(named: Mapping[str, Any]) -> Feeds | None:
    """The arguments as arrays; None when numpy has no such type."""
    try:
        return {name: _array(value) for name, value in named.items()}
    except TypeError:
        return None


def _array(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, torch.Tensor):
        return value.detach().contiguous().numpy()
    if isinstance(value, bool):
        return np.array(value)
    return np.array(value, np.int64 if isinstance(value, int) else np.float64)
