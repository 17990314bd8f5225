"""Lines of the loggers `smelt.*` on stderr, for SMELT_LOG.

Input: a level. Output: a handler, once. Invariant: a program that has handlers of its own gets each record once.
"""

from __future__ import annotations

import logging
from typing import Final

_LEVELS: Final = {"quiet": logging.CRITICAL, "info": logging.INFO, "debug": logging.DEBUG}
_FORMAT: Final = "%(asctime)s %(name)s: %(message)s"


class _Stderr(logging.StreamHandler):  # pyright: ignore[reportMissingTypeArgument, reportUnknownVariableType]
    """Silent where the root logger has handlers: these get the record too."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            super().emit(record)


def write_lines(level: str) -> None:
    root = logging.getLogger("smelt")
    root.setLevel(_LEVELS[level])
    if not any(isinstance(handler, _Stderr) for handler in root.handlers):
        handler = _Stderr()
        handler.setFormatter(logging.Formatter(_FORMAT, "%H:%M:%S"))
        root.addHandler(handler)
