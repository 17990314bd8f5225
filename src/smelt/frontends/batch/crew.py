"""Workers of this machine, as processes or as threads, behind one face.

Input: a job. Output: `Member`s, each of which takes parts and puts what happens into one queue. Invariant: a process
that ends, for whatever reason, puts one `gone` into the queue, after everything that it said.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from smelt.base import errors
from smelt.base.config import child_environment
from smelt.base.errors import BatchError, SmeltError
from smelt.frontends.batch.functions import Function
from smelt.frontends.batch.records import Job, Part, Told

_TAIL_BYTES: Final = 4000
_PACKAGE_DIR: Final = Path(__file__).resolve().parents[3]


@dataclass
class Event:
    """Something that a member said. `kind` is a `Told`'s, or gone."""

    member: Member
    told: Told
    error: BaseException | None = None


class Member(Protocol):
    """One worker."""

    held: list[int]
    heard_at: float
    ready: bool

    def give(self, part: Part) -> None: ...

    def finish(self) -> None:
        """No more parts will come."""
        ...

    def drop(self) -> None:
        """End it now, whatever it is doing."""
        ...

    def end(self) -> str:
        """Wait until it is gone; how it ended, in words."""
        ...


@dataclass
class Crew:
    """How members are made."""

    job: Job
    events: queue.Queue[Event] = field(default_factory=lambda: queue.Queue[Event]())
    preprocess: Function | None = None
    postprocess: Function | None = None
    max_errors: int | None = None

    @property
    def in_processes(self) -> bool:
        """Functions that another process cannot import run in this one."""
        refs = (self.job.preprocess, self.job.postprocess)
        return all(ref is None or ref.importable for ref in refs)

    def member(self) -> Member:
        return ProcessMember(self) if self.in_processes else ThreadMember(self)


class ProcessMember:
    """A worker in a process of its own, which may die or hang alone."""

    def __init__(self, crew: Crew) -> None:
        self.held: list[int] = []
        self.heard_at = time.monotonic()
        self.ready = False
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the member ends
        content = {"mode": "work", "max_errors": crew.max_errors}
        self._started = start(crew.job, content, self._log)
        self._process = self._started.process
        threading.Thread(target=self._listen, args=(crew.events,), daemon=True).start()

    def _listen(self, events: queue.Queue[Event]) -> None:
        for told in listen(self._started):
            self.heard_at = time.monotonic()
            error = told.pop("raised", None)
            events.put(Event(self, Told(**told), error))
        self._process.wait()
        events.put(Event(self, Told("gone")))

    def give(self, part: Part) -> None:
        self.held.append(part.index)
        self._say(str(part.index))

    def finish(self) -> None:
        self._say("end")

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):  # it is gone, and will be heard to be
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()

    def drop(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> str:
        code = self._process.wait()
        return "" if code == 0 else how_it_died(code, self._log)


@dataclass(frozen=True)
class Started:
    process: subprocess.Popen[bytes]
    job_file: Path


def start(job: Job, content: dict[str, Any], log: Any) -> Started:
    """A process with its job in a file that it reads at once."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False, encoding="utf-8") as file:
        json.dump({**content, "job": asdict(job), "parent": os.getpid()}, file)
    path = os.pathsep.join([str(_PACKAGE_DIR), *(entry for entry in sys.path if entry)])
    threads = str(max(1, job.threads))
    changes = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "RAYON_NUM_THREADS": threads}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "smelt.frontends.batch.process", file.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=child_environment({**changes, "TOKENIZERS_PARALLELISM": "true" if job.threads > 1 else "false"}),
        start_new_session=True,
    )
    return Started(process, Path(file.name))


def listen(started: Started) -> Iterator[dict[str, Any]]:
    """What a process says, until it ends. An error that it raised is rebuilt under `raised`."""
    process = started.process
    assert process.stdout is not None
    try:
        for line in process.stdout:
            with suppress(ValueError):  # half a line of a process that was killed
                told: dict[str, Any] = json.loads(line)
                if told["kind"] == "fatal" and "error" in told:
                    kind = getattr(errors, told["error"], BatchError)
                    error = kind(told["code"], told["text"], hint=told["hint"])
                    told = {"kind": "fatal", "raised": error}
                yield told
    finally:
        process.wait()
        started.job_file.unlink(missing_ok=True)


def how_it_died(code: int, log: Any) -> str:
    """The signal, or the last words."""
    log.seek(0, os.SEEK_END)
    log.seek(max(0, log.tell() - _TAIL_BYTES))
    text = log.read().decode("utf-8", errors="replace").strip()
    if code == -signal.SIGKILL:
        return "was killed (SIGKILL): out of memory, or killed by hand"
    if code < 0:
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        return f"died of {name}"
    if code == 137 or "MemoryError" in text or "bad_alloc" in text:
        return "ran out of memory"
    return f"ended with code {code}: {text.splitlines()[-1][:300] if text else 'it said nothing'}"


class ThreadMember:
    """A worker in a thread of this process, for functions that live in the calling program alone."""

    def __init__(self, crew: Crew) -> None:
        from smelt.frontends.batch.worker import Worker

        self.held: list[int] = []
        self.heard_at = time.monotonic()
        self.ready = False
        self._parts: queue.Queue[Part | None] = queue.Queue()
        self._events = crew.events
        self._worker = Worker(
            crew.job, preprocess=crew.preprocess, postprocess=crew.postprocess, tell=self._tell,
            max_errors=crew.max_errors,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _tell(self, told: Told) -> None:
        self.heard_at = time.monotonic()
        self._events.put(Event(self, told))

    def _run(self) -> None:
        from smelt.frontends.batch.worker import StoppedError

        self._tell(Told("ready"))
        try:
            self._worker.run(iter(self._parts.get, None))
        except StoppedError:
            pass
        except SmeltError as error:
            self._events.put(Event(self, Told("fatal"), error))
        except BaseException as error:
            self._events.put(Event(self, Told("fatal"), error))
        self._events.put(Event(self, Told("gone")))

    def give(self, part: Part) -> None:
        self.held.append(part.index)
        self._parts.put(part)

    def finish(self) -> None:
        self._parts.put(None)

    def drop(self) -> None:
        self._worker.stop()
        self._parts.put(None)

    def end(self) -> str:
        self._thread.join(timeout=60)
        return ""
