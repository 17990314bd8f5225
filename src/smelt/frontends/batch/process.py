"""A worker as a process: `python -m smelt.frontends.batch.process JOB`.

Input: a job file; numbers of parts on stdin, one per line. Output: one JSON object per line on the original stdout.
Invariant: what a user's function prints goes to stderr; the process ends when stdin does, and with the process that
started it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from smelt.base.errors import SmeltError
from smelt.frontends.batch.packages import package
from smelt.frontends.batch.records import PROBED, Job, Part, Told, job_from_json


def main(job_file: Path) -> int:
    out = _private_stdout()
    told = json.loads(job_file.read_bytes())
    _die_with(int(told["parent"]))
    job = job_from_json(told["job"])
    if job.preprocess is None and job.postprocess is None:  # functions of users may need it
        sys.meta_path.insert(0, _NoPandas())
    write = _writer(out)
    try:
        package("pyarrow").set_cpu_count(max(1, job.threads))
        if told["mode"] == "probe":
            from smelt.frontends.batch.probe import probe

            found = probe(job, told["wanted"])
            write({"kind": "probed", "found": {name: getattr(found, name) for name in PROBED}})
            return 0
        return _work(job, told, write)
    except MemoryError:
        return 137
    except SmeltError as error:
        kind = type(error).__name__
        write({"kind": "fatal", "error": kind, "code": error.code, "text": error.message, "hint": error.hint})
    return 1


def _work(job: Job, told: dict[str, Any], write: Callable[[dict[str, Any]], None]) -> int:
    from smelt.frontends.batch.worker import StoppedError, Worker

    worker = Worker(job, tell=lambda one: write(asdict(one)), max_errors=told["max_errors"], parts=_wanted(job))
    write(asdict(Told("ready")))
    with suppress(StoppedError):
        worker.run()
    return 0


def _wanted(job: Job) -> Iterator[Part]:
    for line in sys.stdin:
        if line.strip() == "end":
            return
        yield job.parts[int(line)]


def _private_stdout() -> IO[str]:
    """The events' own descriptor; descriptor 1 becomes stderr, for whoever prints."""
    kept = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(kept, "w", encoding="utf-8")


def _writer(out: IO[str]) -> Callable[[dict[str, Any]], None]:
    lock = threading.Lock()

    def write(event: dict[str, Any]) -> None:
        with lock:
            out.write(json.dumps(event) + "\n")
            out.flush()

    return write


class _NoPandas:
    """A finder that finds no pandas. Arrow imports it at its first conversion wherever it is installed, and goes
    without it where it is not: 0.4 s before the first batch."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        del path, target
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not for workers", name=name)


def _die_with(parent: int) -> None:
    """Whoever started this process may be killed, and then nobody ends it."""
    set_death_signal = 1
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    # A full set of interpreter's teardown would wait for the session's threads.
    code = main(Path(sys.argv[1]))
    sys.stderr.flush()
    os._exit(code)
