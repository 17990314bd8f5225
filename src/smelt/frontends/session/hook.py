"""Every session of the process over a compiled model: `smelt.install()`, `smelt exec`, or SMELT_HOOK.

Input: nothing, or how long a session may wait. Output: a wrapped `InferenceSession.__init__`, which subclasses and
early imports of the class share. Invariant: off unless asked for; sessions that smelt makes itself are stock's;
`uninstall` leaves the class as it was.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from smelt.frontends.session.found import Wanted
from smelt.runtime.own_sessions import is_own_session


class _Installed(NamedTuple):
    original: Callable[..., None]
    wanted: Wanted
    skip: tuple[str, ...]


_state: list[_Installed] = []


def install(limit_s: float = 30.0, *, background: bool = False, skip: tuple[str, ...] = ()) -> None:
    """Let every `onnxruntime.InferenceSession` of this process use a compiled model.

    A session waits at most `limit_s` seconds for its model to be compiled; with `background` it starts on stock at
    once, and later sessions use what was compiled. Models whose path matches a pattern of `skip` stay with stock
    (`<memory>` stands for models given as bytes), and so do sessions whose options have the entry `smelt.stock` = 1.
    """
    import onnxruntime

    uninstall()
    session = cast("Any", onnxruntime).InferenceSession
    _state.append(_Installed(session.__init__, Wanted(0.0 if background else limit_s), tuple(skip)))
    session.__init__ = _wrapped(session.__init__)


def uninstall() -> None:
    """Give the class its own constructor back."""
    import onnxruntime

    if _state:
        cast("Any", onnxruntime).InferenceSession.__init__ = _state.pop().original


def installed() -> bool:
    return bool(_state)


def _wrapped(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def construct(
        self: Any, path_or_bytes: Any, sess_options: Any = None, providers: Any = None, provider_options: Any = None,
        **more: Any,
    ) -> None:  # fmt: skip
        state = _state[-1] if _state else None
        if state is None or is_own_session() or _skipped(path_or_bytes, state.skip):
            original(self, path_or_bytes, sess_options, providers, provider_options, **more)
            return
        from smelt.frontends.session.session import Request, open_session

        open_session(
            self, original, Request(path_or_bytes, sess_options, providers, provider_options, more), state.wanted
        )

    return construct


def _skipped(model: Any, patterns: tuple[str, ...]) -> bool:
    if not patterns:
        return False
    import fnmatch

    name = "<memory>" if isinstance(model, bytes) else str(model)
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
