"""Compiles one model for the sessions that wait for it.

Input: a key that the store has nothing for, the model, how long to wait. Output: a `Found`. Invariant: one process
compiles a model at a time, in a process of its own that is gone with its children when the time is over.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from smelt.base.config import child_environment
from smelt.base.errors import CacheError
from smelt.frontends.session.found import BACKGROUND_LIMIT_S, Found, Wanted
from smelt.frontends.session.store import Store

_GRACE_S: Final = 5.0
_END_S: Final = 5.0
_AT_ONCE_S: Final = 1.0  # nobody held the lock


def compiled_now(store: Store, key: str, model: Path | bytes, wanted: Wanted) -> Found:
    if not wanted.limit_s:
        folder, held = store.cache.claim()
        try:
            _start(folder, held, key, model, wanted, locked=False)
        finally:
            os.close(held)
        return Found(None, "it is being compiled in the background; later sessions will use it")
    waiting = time.monotonic()
    try:
        with store.lock(key, wanted.limit_s):
            found = store.find(key)  # by who held the lock
            if found is not None:
                return Found(found)
            failed = store.failure(key, wanted.limit_s)
            if failed is not None:
                return Found(None, failed)
            waited = time.monotonic() - waiting
            left = wanted.limit_s if waited < _AT_ONCE_S else max(wanted.limit_s - waited, 0.1)
            folder, held = store.cache.claim()
            try:
                return _wait(store, key, _start(folder, held, key, model, wanted, locked=True), left)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(held)
    except CacheError:
        return Found(None, f"another process was still compiling it after {wanted.limit_s:g} s")


def _start(
    folder: Path, held: int, key: str, model: Path | bytes, wanted: Wanted, *, locked: bool
) -> subprocess.Popen[bytes]:
    """The compiling process, in a session of its own. It holds its folder as long as it lives."""
    if not sys.executable:
        raise RuntimeError("this program has no Python interpreter to compile with")
    source = folder / "model.onnx" if isinstance(model, bytes) else model.absolute()
    if isinstance(model, bytes):
        source.write_bytes(model)
    limit_s = wanted.limit_s + _GRACE_S if locked else BACKGROUND_LIMIT_S
    job = {"key": key, "model": str(source), "options": dict(wanted.options), "limit_s": limit_s, "locked": locked}
    job["parent"] = os.getpid()
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "smelt.frontends.session.build", str(folder / "job.json")],
        env=child_environment({"PYTHONPATH": path, "SMELT_HOOK": "off"}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=(held,),
    )


def _wait(store: Store, key: str, process: subprocess.Popen[bytes], limit_s: float) -> Found:
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        reason = store.fail_for_time(key, math.ceil(limit_s * 100) / 100)
        return Found(store.find(key), reason)
    finally:
        _end(process)
        if process.returncode == -signal.SIGKILL:
            store.cache.sweep()
    reason = store.failure(key) or f"the compiling process ended with {process.returncode}"
    found = store.find(key)
    if found is None:
        store.fail(key, reason)
    return Found(found, "" if found is not None else reason)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to stop, so that it ends its compilers, which have sessions of their own; then see to it."""
    with suppress(subprocess.TimeoutExpired, ProcessLookupError):
        if process.poll() is None:
            process.terminate()
            process.wait(_END_S)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
