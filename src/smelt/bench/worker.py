"""A process that runs one peer and answers questions about it.

Input: one JSON object per line on stdin. Output: one JSON object per line on stdout. Invariant: nothing else reaches
stdout, whatever the peer's libraries print; times are taken here, around the call alone; the process ends with its
parent.

    {"ask": "open", "peer": ..., "model": ..., "feeds": ..., "threads": ..., "module": ...} -> {"load_s", "first_s"}
    {"ask": "run", "repeat": n}      -> {"seconds": [...]}
    {"ask": "outputs", "path": ...}  -> {"written": n}
    {"ask": "memory"}                -> {"peak_bytes", "own_bytes"}
    {"ask": "fuse", "model": ..., "path": ..., "fusion": ..., "module": ...} -> {}
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np

from smelt.bench.peers import PEERS, Job, Loaded, fuse_with_ort

_PR_SET_PDEATHSIG: Final = 1


class _Worker:
    def __init__(self) -> None:
        self.loaded: Loaded | None = None
        self.started_bytes = 0

    @property
    def peer(self) -> Loaded:
        if self.loaded is None:
            raise RuntimeError("nothing is open")
        return self.loaded

    def open(self, peer: str, model: str, feeds: str, threads: int, module: str) -> dict[str, Any]:
        job = Job(peer, Path(model), Path(feeds), threads, module)
        self.started_bytes = _status_bytes("VmRSS")
        started = time.perf_counter()
        self.loaded = PEERS[peer].open(job)
        ready = time.perf_counter()
        self.loaded.run()
        return {"load_s": ready - started, "first_s": time.perf_counter() - ready}

    def run(self, repeat: int) -> dict[str, Any]:
        run, clock = self.peer.run, time.perf_counter
        seconds: list[float] = []
        for _ in range(repeat):
            started = clock()
            run()
            seconds.append(clock() - started)
        return {"seconds": seconds}

    def outputs(self, path: str) -> dict[str, Any]:
        arrays = self.peer.outputs()
        np.savez(path, *arrays)
        return {"written": len(arrays)}

    def memory(self) -> dict[str, Any]:
        peak = _status_bytes("VmHWM")
        return {"peak_bytes": peak, "own_bytes": max(0, peak - self.started_bytes)}

    def fuse(self, model: str, path: str, fusion: str, module: str) -> dict[str, Any]:
        fuse_with_ort(Path(model), Path(path), fusion, module)
        return {}

    def answer(self, line: str) -> dict[str, Any]:
        question = json.loads(line)
        asked = str(question.pop("ask"))
        known: dict[str, Callable[..., dict[str, Any]]] = {
            "open": self.open,
            "run": self.run,
            "outputs": self.outputs,
            "memory": self.memory,
            "fuse": self.fuse,
        }
        try:
            return known[asked](**question)
        except Exception as error:  # the parent shows it beside the peer's name and goes on
            return {"error": f"{type(error).__name__}: {error}"}


def _status_bytes(key: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return 0


def _private_stdout() -> TextIO:
    """The answers' own channel; what libraries print goes to stderr."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return channel


def _end_with_parent() -> None:
    """A stopped process does not see that its pipe closed, so the kernel is asked to end it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    _end_with_parent()
    channel, worker = _private_stdout(), _Worker()
    for line in sys.stdin:
        channel.write(json.dumps(worker.answer(line)) + "\n")
        channel.flush()


if __name__ == "__main__":
    main()
