"""The command line, one file per verb. `main` is what the installed `smelt` command calls."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
    from smelt.cli.app import make_app

    make_app()(args=list(arguments) if arguments is not None else None)


__all__ = ["main"]
