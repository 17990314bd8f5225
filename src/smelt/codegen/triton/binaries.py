"""Kernels as binaries for each GPU target: source cache, compile jobs, binary cache.

Input: kernels with configurations. Output: `Binary` records. Invariant: a key names the module, the function, the block
sizes, the target and the release of Triton, so a binary is compiled once; compiling happens in processes of its own, in
which a crash costs the kernel and not the caller.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from smelt.base.config import Config as Knobs
from smelt.base.config import child_environment
from smelt.base.errors import CodegenError
from smelt.base.packages import is_installed

from .kernel import Config, GpuTarget, TritonKernel

WORKER: Final = Path(__file__).parent / "compile_worker.py"
MOST_SHARED: Final = {"sm_80": 166912, "sm_86": 101376, "sm_89": 101376, "sm_90": 232448, "sm_100": 232448,
                      "sm_120": 101376, "gfx942": 65536, "gfx1100": 65536}  # fmt: skip

BEYOND: Final = "the kernel needs"


@dataclass(frozen=True)
class Binary:
    """What the target runs, with what a launch must know of it. `text` is PTX or GCN assembly."""

    target: GpuTarget
    image: bytes
    text: str
    threads: int
    shared: int
    registers: int


@dataclass(frozen=True)
class Job:
    kernel: TritonKernel
    config: Config
    target: GpuTarget

    @property
    def key(self) -> str:
        parts = (self.kernel.text, repr(self.config.function), repr(self.config.constants), str(self.config.warps),
                 repr(self.config.divisible), repr(list(self.kernel.signature.items())), str(self.config.stages),
                 self.target.name, triton_version(), "3")  # fmt: skip
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def triton_version() -> str:
    """Nothing where Triton is not installed."""
    if not is_installed("triton"):
        return ""
    try:
        return version("triton")
    except PackageNotFoundError:
        return "unknown"


def require_triton() -> None:
    if not triton_version():
        raise CodegenError(
            "SM-CODEGEN-001",
            "kernels for a GPU need Triton, which is not installed",
            hint="pip install 'onnx-smelt[triton]' where models are compiled; where they run it is not needed.",
        )


class Binaries:
    """The caches of one compilation, below the cache folder."""

    def __init__(self, knobs: Knobs) -> None:
        root = knobs.cache_dir / "triton"
        self.knobs, self.sources, self.folder, self.work = knobs, root / "source", root / "binary", root / "work"
        for folder in (self.sources, self.folder, self.work):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def source(self, kernel: TritonKernel) -> Path:
        digest = hashlib.sha256(kernel.text.encode()).hexdigest()[:16]
        path = self.sources / f"{kernel.name}_{digest}.py"
        if not path.exists():
            new = path.with_name(f"{path.name}.{os.getpid()}")
            new.write_text(kernel.text, encoding="utf-8")
            new.replace(path)
        return path

    def make(self, jobs: Sequence[Job]) -> dict[Job, Binary | str]:
        """Each job's binary, or why there is none."""
        by_key = {job.key: job for job in jobs}
        missing = [job for key, job in by_key.items() if not self._path(key, "json").exists()]
        errors = self._compile(missing) if missing else {}
        return {job: self._result(job, errors.get(job.key, "")) for job in jobs}

    def ttir(self, job: Job) -> str:
        return self._path(job.key, "ttir").read_text(encoding="utf-8")

    def _path(self, key: str, suffix: str) -> Path:
        return self.folder / f"{key}.{suffix}"

    def _result(self, job: Job, error: str) -> Binary | str:
        if error:
            return error
        facts: dict[str, Any] = json.loads(self._path(job.key, "json").read_bytes())
        if facts["scratch"]:
            return "the kernel asks for scratch memory of its own"
        most = MOST_SHARED.get(job.target.name, 49152)
        if facts["shared"] > most:
            return f"{BEYOND} {facts['shared']} bytes of shared memory, {job.target.name} has {most}"
        text = self._path(job.key, "asm").read_text(encoding="utf-8")
        image = self._path(job.key, "bin").read_bytes()
        return Binary(job.target, image, text, facts["threads"], facts["shared"], facts["registers"])

    def _compile(self, jobs: Sequence[Job]) -> dict[str, str]:
        count = max(1, min(self.knobs.jobs or os.cpu_count() or 1, (len(jobs) + 7) // 8))
        shares = [jobs[place::count] for place in range(count)]
        running = [(share, self._start(share)) for share in shares]
        errors: dict[str, str] = {}
        for share, process in running:
            errors |= self._answers(share, process)
        return errors

    def _start(self, jobs: Sequence[Job]) -> subprocess.Popen[str]:
        lines = "".join(json.dumps(self._request(job)) + "\n" for job in jobs)
        with (self.work / f"jobs.{os.getpid()}.{id(jobs)}").open("w+", encoding="utf-8") as file:
            Path(file.name).unlink()  # the process holds it
            file.write(lines)
            file.seek(0)
            return subprocess.Popen(
                [sys.executable, "-W", "ignore", str(WORKER)], stdin=file, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, env=self._environment(),
            )  # fmt: skip

    def _environment(self) -> Mapping[str, str]:
        return child_environment({
            "TRITON_CACHE_DIR": str(self.work), "TRITON_DISABLE_LINE_INFO": "1", "TRITON_DEFAULT_FP_FUSION": "0",
            "TRITON_INTERPRET": "0", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        })  # fmt: skip

    def _request(self, job: Job) -> dict[str, Any]:
        return {
            "key": job.key, "module": str(self.source(job.kernel)), "function": job.config.function,
            "signature": job.kernel.signature, "constants": dict(job.config.constants),
            "divisible": list(job.config.divisible), "warps": job.config.warps, "stages": job.config.stages,
            "target": [job.target.kind, job.target.arch, job.target.warp], "folder": str(self.folder),
        }  # fmt: skip

    def _answers(self, jobs: Sequence[Job], process: subprocess.Popen[str]) -> dict[str, str]:
        limit = self.knobs.compile_timeout_s * max(1, len(jobs) / 8)
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        answers = {a["key"]: str(a["error"]) for a in map(json.loads, out.splitlines())}
        said = err.strip().splitlines()[-1:] or ["the process ended without a word"]
        return {job.key: answers.get(job.key, f"Triton's compiler did not come back: {said[0]}") for job in jobs}
