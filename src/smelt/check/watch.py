"""Run the examining process under limits.

Input: a job (plain JSON), its folder, and how long it may take in all and for one step. Output: `Ran`: the events that
the process reported, and how it ended. Invariant: no pickle of anything but the
user's own kernels, no shell; the process and its children are gone
when `run_worker` returns or raises; a crash, a hang or a memory bomb in the process is a result, not an error. Time is
processor time of the process, so that a busy machine decides nothing; one that uses none for as long is stuck too.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from smelt.base.config import child_environment
from smelt.check.worker import KERNELS_FILE
from smelt.ops.user import pickled_kernels

_POLL_S: Final = 0.01
_TAIL_BYTES: Final = 4000
_STOCK_TIMES: Final = 200.0  # a kernel that takes so many times as long as stock does the whole model hangs
_STARVED_S: Final = 30.0  # a busy machine may keep a process waiting for so long
_KERNEL_STEPS: Final = ("region", "model")
# Small products on a busy machine take longer with threads that wait for each other.
_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_SANITIZER: Final = re.compile(r"AddressSanitizer: [\w-]+|[^/\n]*runtime error: .+")
_FRAME: Final = re.compile(r"^ *#\d+ 0x\w+ in \S+ (?!.*libsanitizer).*?([^/\n]+:\d+)$", re.MULTILINE)
_PACKAGE_DIR: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Limits:
    """In seconds of processor time. `step_s` bounds the time between two events while a kernel runs, and so does
    `_STOCK_TIMES` times what stock ONNX Runtime took, whichever is more; `total_s` bounds the whole run."""

    total_s: float
    step_s: float
    memory_bytes: int = 0


@dataclass(frozen=True)
class Ran:
    """`failure` is empty when the process ended by itself with code 0."""

    events: tuple[dict[str, Any], ...]
    failure: str = ""
    seconds: float = 0.0

    @property
    def last_step(self) -> dict[str, Any]:
        """The last step that was begun and not finished by a later one."""
        return next((event for event in reversed(self.events) if "at" in event), {"at": "start"})


def run_worker(job: dict[str, Any], folder: Path, limits: Limits, module: str = "smelt.check.worker") -> Ran:
    """Start the worker on `job` and follow it to its end, whichever that is. `module` is run as a program."""
    worker = Worker(folder, module, limited(job, limits))
    try:
        return worker.follow(limits)
    finally:
        worker.close()


def limited(job: dict[str, Any], limits: Limits) -> dict[str, Any]:
    """The job as its process reads it."""
    return {**job, "memory_bytes": limits.memory_bytes, "parent": os.getpid()}


class Worker:
    """The examining process. Without a job it loads what it needs, and waits for one.

    Started from the thread that lives longest: the system ends the process with the thread.
    """

    def __init__(self, folder: Path, module: str = "smelt.check.worker", job: dict[str, Any] | None = None) -> None:
        self.folder = folder
        self._job_file, self._events, self._log = folder / "job.json", folder / "events.jsonl", folder / "worker.log"
        self._job_file.unlink(missing_ok=True)
        self._events.write_bytes(b"")
        (folder / KERNELS_FILE).write_bytes(pickled_kernels())
        if job is not None:
            self.give(job)
        path = os.pathsep.join([str(_PACKAGE_DIR), *(entry for entry in sys.path if entry)])
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(self._job_file), str(os.getpid())],
                cwd=folder,
                env=child_environment({"PYTHONPATH": path, **_ONE_THREAD}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def give(self, job: dict[str, Any]) -> None:
        """The job that it begins with now, with its limits."""
        half = self._job_file.with_suffix(".half")
        half.write_text(json.dumps(job), encoding="utf-8")
        half.rename(self._job_file)

    def follow(self, limits: Limits) -> Ran:
        """Wait for its end."""
        watcher = _Watcher(self._process, self._events, limits)
        try:
            failure = watcher.run()
        finally:
            _end(self._process)
        if failure == "died":
            failure = _how_it_died(self._process.returncode, self._log)
        return Ran(_read_events(self._events), failure, watcher.used)

    def close(self) -> None:
        _end(self._process)


class _Watcher:
    """Watches a process; `used` is the processor time that it took so far."""

    def __init__(self, process: subprocess.Popen[bytes], events: Path, limits: Limits) -> None:
        self.process = process
        self.events = events
        self.limits = limits
        self.used = 0.0

    def run(self) -> str:
        size, step_from, active_at = 0, 0.0, time.monotonic()
        while self.process.poll() is None:
            used = _processor_seconds(self.process.pid)
            if used > self.used:
                self.used, active_at = used, time.monotonic()
            grown = self.events.stat().st_size
            if grown != size:
                size, step_from = grown, self.used
            idle = max(0.0, time.monotonic() - active_at - _STARVED_S)
            if max(self.used, idle) > self.limits.total_s:
                return f"no end after {self.limits.total_s:.0f} s"
            taken = max(self.used - step_from, idle)
            if taken > self.limits.step_s and taken > self._patience():
                return f"no end after {taken:.0f} s in one region"
            time.sleep(_POLL_S)
        return "" if self.process.returncode == 0 else "died"

    def _patience(self) -> float:
        """How long the step under way may take. Steps of stock ONNX Runtime and of references are bounded in all."""
        steps = [event for event in _read_events(self.events) if "at" in event]
        if not steps or steps[-1]["at"] not in _KERNEL_STEPS:
            return float("inf")
        return _STOCK_TIMES * float(steps[-1].get("stock_s") or 0.0)


def _processor_seconds(pid: int) -> float:
    """User and system time of all threads; wall time where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return time.monotonic() if not Path("/proc").is_dir() else 0.0


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _how_it_died(code: int, log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        text = file.read().decode("utf-8", errors="replace").strip()
    if code < 0:
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        return f"died of {name}{_complaint(log)}"
    if "MemoryError" in text or "bad_alloc" in text:
        return "ran out of its memory limit"
    return f"ended with code {code}: {text.splitlines()[-1] if text else 'no message'}"


def _complaint(log: Path) -> str:
    """What a sanitizer said and where, in a process whose libraries check bounds."""
    text = log.read_text(encoding="utf-8", errors="replace")
    said = _SANITIZER.search(text)
    if not said:
        return ""
    frame = _FRAME.search(text, said.end()) if "runtime error" not in said.group() else None
    return f": {said.group()}{f' at {frame[1]}' if frame else ''}"


def _read_events(path: Path) -> tuple[dict[str, Any], ...]:
    """Complete lines only: a killed process may leave half a line."""
    found: list[dict[str, Any]] = []
    for line in path.read_bytes().split(b"\n")[:-1]:
        with suppress(ValueError):
            event: Any = json.loads(line)
            if isinstance(event, dict):
                found.append(event)  # pyright: ignore[reportUnknownArgumentType]
    return tuple(found)
