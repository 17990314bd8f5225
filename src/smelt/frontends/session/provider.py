"""Compiles a graph for the plugin execution provider: `python -m smelt.frontends.session.provider FOLDER`.

Input: a folder with model.onnx, model.data and job.json, which the provider wrote. Output: a bundle in the store under
the provider's own key, or a remembered failure. Invariant: it ends by itself at its limit; one process compiles a key
at a time, the others wait for it; what is published is whole. In the background it goes on by itself and removes the
folder at its end.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any, Final

from smelt.base.config import Config
from smelt.base.errors import CacheError, SmeltError
from smelt.base.version import __version__
from smelt.frontends.session.build import TimeUpError, stop_after
from smelt.frontends.session.store import Store

BACKGROUND_LIMIT_S: Final = 1800.0


def main(folder: Path) -> int:
    job: dict[str, Any] = json.loads((folder / "job.json").read_bytes())
    if job["release"] != __version__:
        print(f"this is onnx-smelt {__version__}, the provider is {job['release']}: install the same", file=sys.stderr)
        return 1
    if not job["background"]:
        return _run(job, folder, float(job["limit_s"]))
    if os.fork():  # who waits for this process is told that the work has begun
        return 0
    try:
        return _run(job, folder, BACKGROUND_LIMIT_S)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(job: dict[str, Any], folder: Path, limit_s: float) -> int:
    stop_after(limit_s)
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGALRM))  # ends what was started here, too
    store = Store(Config.from_env())
    try:
        with store.lock(job["key"], 0 if job["background"] else limit_s):
            if store.find(job["key"]) is None and store.failure(job["key"], limit_s) is None:
                _compile(store, job, folder, limit_s)
    except CacheError as error:
        print(error.message, file=sys.stderr)
    except TimeUpError:
        print(f"another process was still compiling it after {limit_s:g} s", file=sys.stderr)
    return 0 if store.find(job["key"]) is not None else 1


def _compile(store: Store, job: dict[str, Any], folder: Path, limit_s: float) -> None:
    from smelt.frontends.session.bundle import shapes_follow, write_bundle
    from smelt.pipeline import Options, compile_to

    model, artifact, staged = folder / "model.onnx", folder / "artifact", folder / "bundle"
    try:
        result = compile_to(model, artifact, Options(threads=int(job["threads"])), Config.from_env())
        if result.library is None:
            store.fail(job["key"], "it gets no kernels: none of its nodes has one, or none is faster than stock's")
            return
        staged.mkdir(mode=0o700)
        write_bundle(artifact, staged, shapes_follow=shapes_follow(model))
        shutil.copyfile(artifact / "manifest.json", staged / "manifest.json")
        store.publish(job["key"], staged)
    except SmeltError as error:
        store.fail(job["key"], f"{error.code}: {error.message}")
    except TimeUpError:
        store.fail_for_time(job["key"], limit_s)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
