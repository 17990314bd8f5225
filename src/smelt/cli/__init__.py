"""The command line, one file per verb. `main` is what the installed `smelt` command calls."""

from __future__ import annotations

import gc
import threading
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
    # A graph's objects live as long as the command: looking for garbage among them often takes a tenth of the time.
    gc.set_threshold(50_000, 20, 20)
    if arguments is None:
        from smelt.cli.bounds import start_with_sanitizer

        start_with_sanitizer()
    from smelt.cli.app import make_app
    from smelt.cli.output import end_on_sigterm

    if threading.current_thread() is threading.main_thread():
        end_on_sigterm()
    make_app()(args=list(arguments) if arguments is not None else None)


__all__ = ["main"]
