"""A process that does not outlive the one that started it.

Input: the number of the parent. Output: none. Invariant: where the system cannot promise it, the process goes on.
"""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from typing import Final

_SET_DEATH_SIGNAL: Final = 1


def end_with_parent(parent: int) -> None:
    """Whoever started this process may be killed, and then nobody ends it."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it was gone before the signal was set
        os._exit(1)
