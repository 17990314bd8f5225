"""Run a compiler.

Input: an argument list, a working folder and a time limit. Output: its exit code and the tail of what it said.
Invariant: no shell; the process and its children are gone when `run` returns or raises.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from smelt.base import child_environment

_TAIL_BYTES = 16_000


@dataclass(frozen=True)
class Finished:
    """How a process ended. `code` is None where it was stopped at the time limit."""

    code: int | None
    stdout: str
    stderr: str


class Processes:
    """The processes of one build, so that the first failure can stop the others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def run(self, command: Sequence[str], folder: Path, timeout_s: float, changes: Mapping[str, str]) -> Finished:
        """Run to the end. After `stop` nothing is started any more, and the code is -SIGKILL."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = self._start(command, folder, changes, out, err)
            if process is None:
                return Finished(-signal.SIGKILL, "", "")
            try:
                code = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _kill(process)
                with self._lock:
                    self._live.discard(process)
            return Finished(code, _tail(out), _tail(err))

    def stop(self) -> None:
        """Kill what runs and refuse what would start."""
        with self._lock:
            self._stopped = True
            for process in self._live:
                _kill_group(process)

    def _start(
        self, command: Sequence[str], folder: Path, changes: Mapping[str, str], out: IO[bytes], err: IO[bytes]
    ) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._stopped:
                return None
            process = subprocess.Popen(
                list(command),
                cwd=folder,
                env=child_environment({"LC_ALL": "C", **changes}),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            self._live.add(process)
            return process


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        _kill_group(process)
        process.wait()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    # A compiler driver starts children; its own session makes them one group. An ended one may be gone already.
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _tail(stream: IO[bytes]) -> str:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - _TAIL_BYTES))
    return stream.read().decode("utf-8", errors="replace")
