"""The process that compiles a model for the store: `python -m smelt.frontends.session.build JOB`.

Input: a job file (JSON) in a folder of its own: the model, the key, options, a time limit. Output: an artifact in the
store, or a remembered failure. Invariant: it ends by itself at its limit; its folder is gone when it ends; a second
one for the same key does nothing; while a session waits for it, it does not outlive that session's process.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from smelt.base.config import Config
from smelt.base.errors import CacheError, SmeltError
from smelt.base.parent import end_with_parent
from smelt.frontends.session.store import Store


class TimeUpError(BaseException):
    """The job's time is over. No fault of smelt: what contains those lets it through."""


def main(job_file: Path) -> int:
    job: dict[str, Any] = json.loads(job_file.read_bytes())
    store = Store(Config.from_env())
    stop_after(float(job["limit_s"]))
    if job["locked"]:
        end_with_parent(int(job["parent"]))
    try:
        if job["locked"]:
            return _compile(store, job, job_file.parent)
        with store.lock(job["key"], 0):
            return _compile(store, job, job_file.parent)
    except CacheError:  # another process is at it
        return 1
    except TimeUpError:
        if not job["locked"]:  # else the session that waits remembers it, by its own limit
            store.fail_for_time(job["key"], float(job["limit_s"]))
        return 1
    finally:
        shutil.rmtree(job_file.parent, ignore_errors=True)


def _compile(store: Store, job: dict[str, Any], folder: Path) -> int:
    if store.find(job["key"]) is not None:
        return 0
    from smelt.pipeline import Options, compile_to

    try:
        compile_to(job["model"], folder / "artifact", Options(**job["options"]), Config.from_env())
    except SmeltError as error:
        store.fail(job["key"], f"{error.code}: {error.message}")
        return 1
    store.publish(job["key"], folder / "artifact")
    return 0


def stop_after(seconds: float) -> None:
    """Raise `TimeUpError` in the main thread when the time is over."""

    def stop(number: int, frame: object) -> None:
        del number, frame
        raise TimeUpError

    handler: Callable[[int, object], None] = stop
    signal.signal(signal.SIGALRM, handler)
    signal.signal(signal.SIGTERM, handler)  # compilers are ended on the way out
    signal.setitimer(signal.ITIMER_REAL, seconds)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
