"""What a verb says, and how it fails.

Input: a verb's lines, facts and errors. Output: text on stdout, or one JSON document; errors as text on stderr, or as
the JSON document. Invariant: with `--json` stdout holds exactly one JSON document; a traceback is shown only with
`-vv`; the exit code is 0, 1 (failed), 2 (wrong usage, bad input) or 3 (less in kernels than was asked for).
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from signal import SIGINT, SIGTERM, signal
from typing import Any, Final, NoReturn

import typer

from smelt.base.errors import (
    ArtifactError,
    CacheError,
    CompileError,
    ConfigError,
    CoverageError,
    InputError,
    LoadError,
    ModelError,
    SmeltError,
)
from smelt.base.terminal import stdout_columns, within

OK: Final = 0
FAILED: Final = 1
BAD_INPUT: Final = 2
LITTLE_COVERAGE: Final = 3
_INPUT_ERRORS: Final = (ConfigError, LoadError, ModelError, InputError, ArtifactError, CacheError)
_TRACEBACK_AT: Final = 2


class Terminated(KeyboardInterrupt):
    """SIGTERM: what is under way ends as if it were interrupted, with its processes and temporary folders."""


def end_on_sigterm() -> None:
    """Let SIGTERM unwind the program instead of ending it where it stands."""

    def stop(number: int, frame: object) -> NoReturn:
        del number, frame
        raise Terminated

    signal(SIGTERM, stop)


class Output:
    """Where a verb writes. `facts` are for `--json`, `lines` for people; a verb gives both."""

    def __init__(self, as_json: bool, verbose: int, quiet: bool) -> None:
        self.as_json = as_json
        self.verbose = verbose
        self.quiet = quiet
        self._facts: dict[str, Any] = {}

    def lines(self, *lines: str | Iterable[str]) -> None:
        """Print unless quiet or asked for JSON."""
        if self.as_json or self.quiet:
            return
        for item in lines:
            for line in (item,) if isinstance(item, str) else item:
                _write(line)

    def result(self, line: str) -> None:
        """A line that is the answer itself: shown even when quiet."""
        if not self.as_json:
            _write(line)

    def facts(self, **facts: Any) -> None:
        self._facts.update(facts)

    def finish(self) -> None:
        if self.as_json:
            _write(json.dumps(self._facts, indent=1, default=str))

    def fail(self, error: BaseException) -> NoReturn:
        """Say what went wrong and exit."""
        code = _code_of(error)
        if self.as_json:
            _write(json.dumps({**self._facts, "error": _error_facts(error)}, indent=1, default=str))
        for line in _error_lines(error, self.verbose):
            _complain(line)
        if self.verbose >= _TRACEBACK_AT:
            _complain("".join(traceback.format_exception(error)).rstrip())
        raise typer.Exit(code) from None


@contextmanager
def reporting(as_json: bool = False, verbose: int = 0, quiet: bool = False) -> Generator[Output]:
    """The output of one verb: JSON is written at the end, errors become text and an exit code."""
    output = Output(as_json, verbose, quiet)
    try:
        with within(stdout_columns()):
            yield output
    except typer.Exit as ended:
        if not ended.exit_code:
            output.finish()
        raise
    except BrokenPipeError:
        # The reader has enough; nothing more can be said on stdout, not even by the interpreter's last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(OK) from None
    except KeyboardInterrupt as stopped:
        _complain("stopped")
        raise typer.Exit(128 + (SIGTERM if isinstance(stopped, Terminated) else SIGINT)) from None
    except Exception as error:
        output.fail(error)
    else:
        output.finish()


def failed(output: Output) -> NoReturn:
    """End with the facts written and the exit code of a failure."""
    output.finish()
    raise typer.Exit(FAILED)


def _code_of(error: BaseException) -> int:
    if isinstance(error, CoverageError):
        return LITTLE_COVERAGE
    bad = isinstance(error, (*_INPUT_ERRORS, OSError)) or _is_foreign(error)
    return BAD_INPUT if bad else FAILED


def _is_foreign(error: BaseException) -> bool:
    return type(error).__module__.startswith("onnxruntime")


def _error_facts(error: BaseException) -> dict[str, Any]:
    if isinstance(error, SmeltError):
        return {"code": error.code, "message": error.message, "node": error.node, "hint": error.hint}
    return {"code": None, "message": str(error), "node": None, "hint": None, "kind": type(error).__name__}


def _error_lines(error: BaseException, verbose: int) -> list[str]:
    from smelt.report.readable import readable

    if isinstance(error, SmeltError):
        lines = [f"error: {readable(error.message, 2000)}"]
        lines += [f"  node: {readable(error.node, 400)}"] if error.node else []
        lines += [f"  try:  {readable(error.hint, 1000)}"] if error.hint else []
        lines += [f"  code: {error.code} (`smelt explain-error {error.code}` says more)"]
        if isinstance(error, CompileError) and verbose:
            lines += ["  command: " + " ".join(error.command), error.stderr.rstrip()]
        return lines
    message = readable(str(error), 2000)
    if _is_foreign(error):
        notes = getattr(error, "__notes__", ())
        return [f"error: ONNX Runtime says: {message}", *(f"  {readable(note, 1000)}" for note in notes)]
    if isinstance(error, OSError):
        return [f"error: {message}"]
    return [
        f"internal error: {type(error).__name__}: {message}",
        "  this is a fault of smelt; -vv shows where it happened",
    ]


def _write(line: str) -> None:
    sys.stdout.write(_encodable(line) + "\n")


def _complain(line: str) -> None:
    sys.stderr.write(_encodable(line) + "\n")


def _encodable(text: str) -> str:
    """A terminal that knows ASCII only gets escapes instead of an error."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
