"""The logging tree `smelt.*`.

Input: names of its loggers, and what SMELT_LOG asks for. Output: standard loggers. Invariant: nothing is configured
that a program did not ask for: without SMELT_LOG its own configuration of `logging` decides, as for any library; with
it, lines go to stderr once, also where the program has handlers of its own.

| logger | what it tells |
|---|---|
| `smelt.pipeline` | a compilation: the model, what came of it, its stages (debug) |
| `smelt.toolchain` | libraries that were built or found (debug) |
| `smelt.torch` | graphs and modules that are traced and compiled, and again |
| `smelt.progress` | how far a long compilation is, every ten seconds, where there is no terminal |
| `smelt.session` | sessions of the hook and of `smelt.InferenceSession`: compiled, or stock and why |
"""

from __future__ import annotations

import logging
from typing import Final

_ROOT: Final = "smelt"
_LEVELS: Final = {"quiet": logging.CRITICAL, "info": logging.INFO, "debug": logging.DEBUG}
_FORMAT: Final = "%(asctime)s %(name)s: %(message)s"


def logger(part: str) -> logging.Logger:
    """The logger of one part of the package."""
    return logging.getLogger(f"{_ROOT}.{part}")


class _Stderr(logging.StreamHandler):  # pyright: ignore[reportMissingTypeArgument, reportUnknownVariableType]
    """Silent where the root logger has handlers: these get the record too."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            super().emit(record)


def configure(level: str | None) -> None:
    """Follow SMELT_LOG; None: it is not set, and the program's own configuration stands."""
    root = logging.getLogger(_ROOT)
    if level is None:  # warnings reach stderr by Python's handler of last resort
        return
    root.setLevel(_LEVELS[level])
    if not any(isinstance(handler, _Stderr) for handler in root.handlers):
        handler = _Stderr()
        handler.setFormatter(logging.Formatter(_FORMAT, "%H:%M:%S"))
        root.addHandler(handler)
