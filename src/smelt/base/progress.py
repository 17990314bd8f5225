"""Progress bars, when somebody is looking.

Input: named tasks and their steps. Output: a `Progress` that draws on a terminal's stderr, or does nothing.
Invariant: nothing is written when quiet or when stderr is no terminal; stages only know this facade, never rich.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

from smelt.base.config import Config


class Step(Protocol):
    """Told about each finished piece of one task. Safe to call from several threads."""

    def __call__(self, text: str = "", advance: int = 1) -> None: ...


class Progress(Protocol):
    """Opens tasks."""

    def task(self, title: str, total: int | None = None) -> Step: ...


class Silent:
    """The progress of a pipe, a test or a quiet run."""

    def task(self, title: str, total: int | None = None) -> Step:
        del title, total
        return _nothing


def _nothing(text: str = "", advance: int = 1) -> None:
    del text, advance


@contextmanager
def open_progress(config: Config, *, terminal: bool | None = None) -> Generator[Progress]:
    """A progress display for the duration of a `with`. `terminal` overrides the check of stderr."""
    shown = sys.stderr.isatty() if terminal is None else terminal
    if config.quiet or not shown:
        yield Silent()
        return
    with _open_bars(config.color) as bars:
        yield bars


@contextmanager
def _open_bars(color: bool) -> Generator[Progress]:
    # rich takes longer to import than a compile from the cache may take.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", style="dim", markup=False),
    )
    console = Console(stderr=True, force_terminal=True, no_color=not color)
    with RichProgress(*columns, console=console, transient=True) as display:

        class Bars:
            def task(self, title: str, total: int | None = None) -> Step:
                from rich.markup import escape

                number = display.add_task(escape(title), total=total, note="")

                def step(text: str = "", advance: int = 1) -> None:
                    display.update(number, advance=advance, note=text)

                return step

        yield Bars()
