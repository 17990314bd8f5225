"""Compile and run a model in another process that may crash, hang or run out of memory.

Input: a model (proto or bytes) and feeds. Output: an `Answer` that says what became of it. Invariant: this process
survives; nothing but the output folder appears beside it, and after a failed compilation not even that.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import onnx

import smelt

WORKER = Path(__file__).with_name("sandbox_worker.py")
START_TIMEOUT_S = 120.0
Feeds = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Answer:
    """`status` is compiled, refused (a SmeltError), raised (another exception), crashed or hanged."""

    status: str
    code: str = ""
    message: str = ""
    kernels: int = 0
    nodes: int = 0
    leaked: bool = False
    seconds: float = 0.0
    calls: list[dict[str, str]] = field(default_factory=list)
    debris: list[str] = field(default_factory=list)

    @property
    def verdicts(self) -> list[str]:
        """Of each call: right, wrong, or failed (with the words of the error in `calls`)."""
        return [call["status"] for call in self.calls]

    def is_right(self) -> bool:
        """Compiled, and every call gave what stock ONNX Runtime gives (an error where that gives one)."""
        return self.status == "compiled" and set(self.verdicts) <= {"right"}

    def is_right_or_refused(self) -> bool:
        return self.is_right() or (self.status == "refused" and bool(self.message))

    def is_sound(self) -> bool:
        """As above; an answer where stock ONNX Runtime takes no such model counts as well."""
        fine = self.status == "compiled" and set(self.verdicts) <= {"right", "unchecked"}
        return fine or self.is_right_or_refused()

    def __str__(self) -> str:
        return f"{self.status} {self.code} {self.message[:600]} {self.calls} {self.debris}"


class Sandbox:
    """One worker process, started again whenever it died."""

    def __init__(self, folder: Path, memory_bytes: int = 6_000_000_000) -> None:
        self.folder = folder
        self.memory_bytes = memory_bytes
        self.count = 0
        self.process: subprocess.Popen[str] | None = None

    def submit(
        self,
        model: onnx.ModelProto | bytes | Path,
        *calls: Feeds,
        expected: Sequence[Sequence[np.ndarray]] | None = None,
        marker: str = "",
        timeout_s: float = 120.0,
        **options: Any,
    ) -> Answer:
        """Compile `model`, run it on each of `calls` and compare with stock ONNX Runtime, or with `expected`.

        `marker` is text that must not appear in generated source.
        """
        self.count += 1
        place = self.folder / f"case{self.count}"
        place.mkdir()
        path = model if isinstance(model, Path) else place / "model.onnx"
        if isinstance(model, bytes):
            path.write_bytes(model)
        elif isinstance(model, onnx.ModelProto):
            path.write_bytes(model.SerializeToString())
        work = place / "work"
        work.mkdir()
        request = {
            "model": str(path),
            "work": str(work),
            "calls": [self._save(place / f"call{i}.npz", feeds) for i, feeds in enumerate(calls)],
            "expected": None
            if expected is None
            else [
                self._save(place / f"expected{i}.npz", {str(k): v for k, v in enumerate(arrays)})
                for i, arrays in enumerate(expected)
            ],
            "marker": marker,
            "options": {"levels": ["v2"], "force": True, "verify": False, **options},
        }
        answer = self._ask(request, timeout_s)
        left = sorted(p.name for p in work.iterdir())
        wanted = ["out"] if answer["status"] == "compiled" else []
        return Answer(**answer, debris=[name for name in left if name not in wanted])

    @staticmethod
    def _save(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
        # Names of arrays may be anything, so they are kept beside the numbered arrays.
        np.savez(path, names=np.array(json.dumps(list(arrays))), **{f"a{i}": v for i, v in enumerate(arrays.values())})
        return str(path)

    def _start(self) -> subprocess.Popen[str]:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        source = str(Path(smelt.__file__).parents[1])
        cache = str(self.folder / "cache")
        environment = {**os.environ, "HOME": str(home), "SMELT_CACHE_DIR": cache, "PYTHONPATH": source}
        with (self.folder / "stderr.txt").open("a") as errors:
            process = subprocess.Popen(
                [sys.executable, str(WORKER), str(self.memory_bytes)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, cwd=home,
            )  # fmt: skip
        self.process = process
        assert self._read(START_TIMEOUT_S) == {"ready": True}, "the worker does not start: see stderr.txt"
        return process

    def _read(self, timeout_s: float) -> dict[str, Any]:
        assert self.process is not None and self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(timeout_s):
                self.stop()
                return {"status": "hanged", "message": f"no answer within {timeout_s:.0f} s"}
        line = self.process.stdout.readline()
        if line.endswith("\n"):
            return json.loads(line)
        code = self.process.wait()
        self.process = None
        return {"status": "crashed", "message": f"the process ended with {code}"}

    def _ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        process = self.process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass
        return self._read(timeout_s)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
