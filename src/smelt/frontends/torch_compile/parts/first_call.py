"""A part that is compiled with the arguments of its first call.

Input: how to bind a part, given its inputs by name, and how to bind it without kernels. Output: a function for the
part's calls. Invariant: kernels of training graphs are verified on what the program really computes: made-up
activations and gradients fit no forward pass, and would condemn kernels that are right. What cannot be compiled so runs
in a plain session, with a note; so does, unless kernels were asked for, what a plain session computes faster.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch

from smelt.frontends.torch_compile.inspection.record import PartReport

Call = Callable[[Sequence[Any]], Sequence[Any]]
Feeds = dict[str, np.ndarray[Any, Any]]
Bind = Callable[[Feeds | None], Call]
_TRIALS: Final = 4
_NOISE: Final = 1.03  # a difference that the next run may not show


class Rival:
    """A plain session that kernels have to beat. `report` is told when they do not."""

    def __init__(self, plain: Callable[[], Call], report: PartReport) -> None:
        self._plain = plain
        self._report = report

    def faster(self, call: Call, args: Sequence[Any]) -> Call:
        """`call`, or the plain session's where that takes clearly less time for these arguments."""
        if not self._report.kernels:
            return call
        plain = self._plain()
        kernels_s, plain_s = _shortest((call, plain), args)
        if kernels_s <= plain_s * _NOISE:
            return call
        self._report.kernels, self._report.in_kernels = False, 0
        took = f"{1e3 * kernels_s:.2f} ms against {1e3 * plain_s:.2f} ms"
        self._report.notes.append(f"a plain session, which is faster than kernels here: {took}")
        return plain


def _shortest(calls: Sequence[Call], args: Sequence[Any]) -> list[float]:
    """Seconds of the shortest run of each; they take turns."""
    best = [float("inf")] * len(calls)
    for _ in range(_TRIALS):
        for place, call in enumerate(calls):
            started = time.perf_counter()
            call(args)
            best[place] = min(best[place], time.perf_counter() - started)
    return best


class FirstCall:
    """Binds the part when it is called, once; `bound` is told of the function that serves all calls after that."""

    def __init__(
        self, named: Callable[[Sequence[Any]], Mapping[str, Any]], bind: Bind, plain: Callable[[], Call],
        bound: Callable[[Call], None], notes: list[str], rival: Rival | None = None,
    ) -> None:  # fmt: skip
        self._named = named
        self._bind = bind
        self._plain = plain
        self._bound = bound
        self._notes = notes
        self._rival = rival
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
            call = self._bind(as_feeds(self._named(args)))
            return call if self._rival is None else self._rival.faster(call, args)
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
        return value.detach().contiguous().cpu().numpy()
    if isinstance(value, bool):
        return np.array(value)
    return np.array(value, np.int64 if isinstance(value, int) else np.float64)
