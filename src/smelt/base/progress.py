"""Progress bars, when somebody is looking.

Input: named tasks and their steps. Output: a `Progress` that draws on a terminal's stderr, rewrites a line in a
notebook, or logs now and then. Invariant: nothing is written when quiet; stages only know this facade, never rich.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol

from smelt.base.config import Config
from smelt.base.log import logger

_EVERY_S: Final = 10.0
_REDRAW_S: Final = 0.2
_log: Final = logger("progress")


class Step(Protocol):
    """Told about each finished piece of one task. Safe to call from several threads."""

    def __call__(self, text: str = "", advance: int = 1) -> None: ...


class Progress(Protocol):
    """Opens tasks."""

    def task(self, title: str, total: int | None = None) -> Step: ...


_current: ContextVar[Progress | None] = ContextVar("smelt_progress", default=None)


class Silent:
    """The progress of a pipe, a test or a quiet run."""

    def task(self, title: str, total: int | None = None) -> Step:
        del title, total
        return _nothing


def _nothing(text: str = "", advance: int = 1) -> None:
    del text, advance


@contextmanager
def open_progress(config: Config, what: str = "", *, terminal: bool | None = None) -> Generator[Progress]:
    """A progress display for the duration of a `with`. `terminal` overrides the check of stderr.

    Inside another one that is the display: what calls the pipeline shows its own steps in the same place.
    """
    outer = _current.get()
    if outer is not None:
        yield outer
        return
    with _display(config, what, terminal) as display:
        token = _current.set(display)
        try:
            yield display
        finally:
            _current.reset(token)


@contextmanager
def _display(config: Config, what: str, terminal: bool | None) -> Generator[Progress]:
    shown = sys.stderr.isatty() if terminal is None else terminal
    if config.quiet:
        yield Silent()
    elif shown:
        with _open_bars(config.color) as bars:
            yield bars
    elif terminal is None and "ipykernel" in sys.modules:
        line = Line(what)
        try:
            yield line
        finally:
            line.clear()
    else:
        yield Logged(what)


class Logged:
    """The progress of a service: a line of log now and then."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._started = self._told = time.monotonic()

    def task(self, title: str, total: int | None = None) -> Step:
        done = 0

        def step(text: str = "", advance: int = 1) -> None:
            nonlocal done
            done += advance
            now = time.monotonic()
            if now - self._told >= _EVERY_S:
                self._told = now
                _log.info("%s", _line(self._what, title, done, total, text, now - self._started))

        return step


class Line:
    """The progress of a notebook: one line that is written over."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._started = time.monotonic()
        self._told = 0.0
        self._width = 0

    def task(self, title: str, total: int | None = None) -> Step:
        done = 0

        def step(text: str = "", advance: int = 1) -> None:
            nonlocal done
            done += advance
            if time.monotonic() - self._told >= _REDRAW_S:
                self._draw(_line(self._what, title, done, total, text, time.monotonic() - self._started))

        self._draw(_line(self._what, title, 0, total, "", time.monotonic() - self._started))
        return step

    def clear(self) -> None:
        self._draw("")
        sys.stderr.write("\r")

    def _draw(self, text: str) -> None:
        self._told = time.monotonic()
        sys.stderr.write(f"\r{text:<{self._width}}")
        sys.stderr.flush()
        self._width = len(text)


def _line(what: str, title: str, done: int, total: int | None, note: str, seconds: float) -> str:
    """`distilbert: compile kernels 3 of 40, 12 s`."""
    count = f" {done} of {total}" if total else ""
    return f"{what + ': ' if what else ''}{title}{count}{' (' + note + ')' if note else ''}, {seconds:.0f} s"


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
