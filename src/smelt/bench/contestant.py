"""The parent's side of a worker process.

Input: a job and the CPUs to run on. Output: a `Contestant` that is running, or stopped. Invariant: between its turns a
contestant is stopped by the kernel (SIGSTOP), threads included: no thread pool of one peer can spin while another is
timed, and no peer's settings have to be changed for that. One that compiles does so on all CPUs, and is timed on its
own.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, cast

from smelt.base.config import child_environment
from smelt.bench.peers import Array, Job

_THREAD_VARIABLES: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_PACKAGE_PARENT: Final = Path(__file__).resolve().parents[2]
_ANSWER_S: Final = 600.0


class PeerError(Exception):
    """A peer cannot run this model; the table shows why. `contestant` is the one that failed, once it runs."""

    def __init__(self, message: str, contestant: Contestant | None = None) -> None:
        super().__init__(message)
        self.contestant = contestant


class Contestant:
    """One worker process. A context manager; made stopped, woken for each question and stopped again after it."""

    def __init__(self, job: Job, cpus: Collection[int]) -> None:
        self.name, self._job, self._cpus = job.peer, job, tuple(cpus)
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        variables = {name: str(job.threads) for name in _THREAD_VARIABLES}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "smelt.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=child_environment({**variables, **import_path()}),
        )
        if not job.compiles:
            os.sched_setaffinity(self._process.pid, cpus)
        self._selector = selectors.DefaultSelector()
        self._selector.register(cast("IO[bytes]", self._process.stdout), selectors.EVENT_READ)

    @classmethod
    def open(cls, job: Job, cpus: Collection[int], patience_s: float = _ANSWER_S) -> Contestant:
        """A worker that has loaded its model and run it once, within a time."""
        contestant = cls(job, cpus)
        contestant.load(patience_s)
        return contestant

    def load(self, patience_s: float = _ANSWER_S) -> None:
        """Load the model and run it once, or close. May be called by a thread that ends soon; the process itself must
        be made by one that lives as long, since it ends with the thread that made it."""
        self._patience_s = patience_s
        try:
            opened = self.ask("open", **{k: _plain(v) for k, v in asdict(self._job).items()})
            self.move_to(self._cpus)
        except BaseException:
            self.close()
            raise
        self._patience_s = _ANSWER_S
        self.load_s, self.first_s = float(opened["load_s"]), float(opened["first_s"])

    @property
    def process_id(self) -> int:
        return self._process.pid

    def move_to(self, cpus: Collection[int]) -> None:
        """All threads there are; those to come follow the one that makes them."""
        for task in Path(f"/proc/{self._process.pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), cpus)

    load_s: float = 0.0
    first_s: float = 0.0
    _patience_s: float = _ANSWER_S

    def run(self, repeat: int, warm: int = 0) -> list[float]:
        """Seconds of each of `repeat` runs; `warm` runs before them bring caches and threads back."""
        seconds = cast("list[float]", self.ask("run", repeat=repeat + warm)["seconds"])
        return seconds[warm:]

    def outputs(self) -> list[Array]:
        import numpy as np

        with tempfile.TemporaryDirectory(prefix="smelt-bench-") as folder:
            path = Path(folder) / "outputs.npz"
            self.ask("outputs", path=str(path))
            with np.load(path, allow_pickle=False) as stored:
                return [stored[f"arr_{place}"] for place in range(len(stored.files))]

    def memory(self) -> tuple[int, int]:
        """Peak of the whole process in bytes, and of that what came after the start of Python."""
        found = self.ask("memory")
        return int(found["peak_bytes"]), int(found["own_bytes"])

    def ask(self, question: str, **arguments: Any) -> dict[str, Any]:
        stdin = cast("IO[bytes]", self._process.stdin)
        self._signal(signal.SIGCONT)
        try:
            stdin.write(json.dumps({"ask": question, **arguments}).encode() + b"\n")
            stdin.flush()
            line = self._line()
        except OSError as error:
            raise PeerError(self._last_words(), self) from error
        finally:
            self._signal(signal.SIGSTOP)
        answer = cast("dict[str, Any]", json.loads(line))
        if "error" in answer:
            raise PeerError(str(answer["error"]), self)
        return answer

    def _line(self) -> bytes:
        stdout = cast("IO[bytes]", self._process.stdout)
        if not self._selector.select(self._patience_s):
            raise PeerError(f"no answer in {self._patience_s:g} s", self)
        line = stdout.readline()
        if not line:
            raise PeerError(self._last_words(), self)
        return line

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        code = self._process.poll()
        return f"its process ended ({code}): {lines[-1] if lines else 'it said nothing'}"

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self._selector.close()

    def __enter__(self) -> Contestant:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


def import_path() -> dict[str, str]:
    """Makes a child find this package and what lies beside it, wherever this process found them."""
    return {"PYTHONPATH": os.pathsep.join([str(_PACKAGE_PARENT), *(entry for entry in sys.path if entry)])}


def choose_cpus(threads: int) -> tuple[int, ...]:
    """The last CPUs that this process may use, since the first ones serve interrupts."""
    allowed = sorted(os.sched_getaffinity(0))
    return tuple(allowed[-threads:])
