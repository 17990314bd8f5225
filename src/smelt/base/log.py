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

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging

_ROOT = "smelt"


def logger(part: str) -> logging.Logger:
    """The logger of one part of the package."""
    import logging

    return logging.getLogger(f"{_ROOT}.{part}")


def tell(part: str, message: str, *values: object) -> None:
    """Log it at the level of information. Where nobody imported `logging`, nobody asked for that."""
    if "logging" in sys.modules:
        logger(part).info(message, *values)


def configure(level: str | None) -> None:
    """Follow SMELT_LOG; None: it is not set, and the program's own configuration stands."""
    if level is None:  # warnings reach stderr by Python's handler of last resort
        return
    from smelt.base._stderr_lines import write_lines

    write_lines(level)
