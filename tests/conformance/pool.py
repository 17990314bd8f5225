"""Worker processes that survive what cases do to them.

Input: requests. Output: answers, in the order they come; a worker that dies or does not answer in time gives
`crashed` or `hanged` and is replaced. Invariant: every request gets exactly one answer.
"""

from __future__ import annotations

import json
import queue
import selectors
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("worker.py")
START_TIMEOUT_S = 120.0


class _Worker:
    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.ready = self._read(START_TIMEOUT_S)

    def _read(self, timeout_s: float) -> dict[str, Any] | None:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(timeout_s):
                self.process.kill()
                return {"status": "hanged", "detail": f"no answer within {timeout_s:.0f} s"}
        line = self.process.stdout.readline()
        return json.loads(line) if line.endswith("\n") else None

    def ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        answer = self._read(timeout_s)
        if answer is not None:
            return answer
        return {"status": "crashed", "detail": f"the process ended with {self.process.wait()}"}

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def run_all(
    requests: Sequence[dict[str, Any]], count: int, timeout_s: float, command: Sequence[str]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each request with its answer, as they finish."""
    todo: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for request in requests:
        todo.put(request)
    threads = [
        threading.Thread(target=_serve, args=(todo, done.put, command, timeout_s), daemon=True) for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    for _ in requests:
        item = done.get()
        if isinstance(item, BaseException):
            raise item
        yield item


def _serve(todo: Any, put: Callable[[Any], None], command: Sequence[str], timeout_s: float) -> None:
    worker: _Worker | None = None
    try:
        while True:
            try:
                request = todo.get_nowait()
            except queue.Empty:
                break
            if worker is None or not worker.alive:
                worker = _Worker(command)
                if worker.ready is None or "ready" not in worker.ready:
                    raise RuntimeError("a worker does not start; run worker.py by hand to see why")
            answer = worker.ask(request, timeout_s)
            if answer["status"] in ("crashed", "hanged"):
                worker.stop()
                worker = None
            put((request, answer))
    except BaseException as error:
        put(error)
    finally:
        if worker is not None:
            worker.stop()
