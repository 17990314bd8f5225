"""How wide the reader's terminal is.

Input: what the command line found out. Output: a number of columns for whoever lays out text. Invariant: None (no
limit) where nobody said otherwise: files and pipes get lines as long as their content.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

_columns: ContextVar[int | None] = ContextVar("smelt_columns", default=None)


def columns() -> int | None:
    """The widest line that may be printed."""
    return _columns.get()


@contextmanager
def within(width: int | None) -> Generator[None]:
    """Text made in here is at most so wide, as far as it can be broken."""
    token = _columns.set(width)
    try:
        yield
    finally:
        _columns.reset(token)


def stdout_columns() -> int | None:
    """Where somebody reads stdout at a terminal; None for files and pipes."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError, AttributeError):
        return None
