"""Sessions that smelt makes for itself.

Input: nothing. Output: whether the session under construction is one. Invariant: importing this loads nothing else of
smelt: every session of a process with the hook asks.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

_own: ContextVar[bool] = ContextVar("smelt_own_session", default=False)


@contextmanager
def own_sessions() -> Generator[None]:
    """Sessions constructed in here are stock's, also where a hook gives others compiled models."""
    token = _own.set(True)
    try:
        yield
    finally:
        _own.reset(token)


def is_own_session() -> bool:
    return _own.get()
