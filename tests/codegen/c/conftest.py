"""Builds a C harness of array functions per compiler and CPU level, and calls it with numpy arrays.

Input: a source file of this folder that includes harness.h. Output: `Harness.call(name, a, b, ...)`.
Invariant: a build for this machine is loaded with ctypes; one for another CPU runs under qemu-user and answers by pipe.
"""

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).parent
INCLUDE = HERE.parents[2] / "src" / "smelt" / "codegen" / "c" / "include"
FLAGS = ["-std=gnu11", "-O2", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]
FLAGS += ["-fPIC", "-fvisibility=hidden", "-g0"]
AARCH64_ROOT = Path("/usr/aarch64-linux-gnu")
LEVEL_FEATURES = {"x86-64-v2": "sse4_2", "x86-64-v3": "avx2", "x86-64-v4": "avx512vl"}
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Build:
    """One way to compile the harness: `emulator` is empty where this machine runs the result itself."""

    compiler: tuple[str, ...]
    march: str
    vector_bytes: int
    emulator: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return f"{Path(self.compiler[0]).name if len(self.compiler) == 1 else 'zig'}-{self.march}-{self.vector_bytes}"

    def command(self) -> list[str]:
        march = self.march.replace("x86-64-", "x86_64_") if len(self.compiler) > 1 else self.march
        return [*self.compiler, *FLAGS, f"-I{INCLUDE}", f"-march={march}", f"-DSMELT_VL={self.vector_bytes}"]


class Harness:
    """The functions of one harness source under one build."""

    def __init__(self, build: Build, source: str, folder: Path) -> None:
        self.build = build
        self.binary = folder / f"{Path(source).stem}-{build.title}"
        shape = ["-DHARNESS_MAIN"] if build.emulator else ["-shared"]
        environment = os.environ | {f"ZIG_{kind}_CACHE_DIR": str(folder / "zig") for kind in ("GLOBAL", "LOCAL")}
        command = [*build.command(), *shape, str(HERE / source), "-o", str(self.binary), "-lm"]
        subprocess.run(command, check=True, env=environment, timeout=240)
        self.library = None if build.emulator else ctypes.CDLL(str(self.binary))
        self.process = self._start() if build.emulator else None

    def _start(self) -> subprocess.Popen[bytes]:
        command = [*self.build.emulator, str(self.binary)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def close(self) -> None:
        if self.process is not None:
            self.process.communicate(timeout=60)

    def call(self, name: str, a: Array, b: Array | None = None, *, out: Array, count: int | None = None) -> Array:
        """Runs `name` over `count` (default: the length of a) elements; gives back `out`, filled."""
        a = np.ascontiguousarray(a)
        b = np.zeros(0, np.uint8) if b is None else np.ascontiguousarray(b)
        n = a.size if count is None else count
        if self.library is None:
            return self._call_emulated(name, a, b, out, n)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (a, b, out)]
        assert self.library.harness_call(name.encode(), *pointers, ctypes.c_int64(n)) == 0, f"no function {name}"
        return out

    def _call_emulated(self, name: str, a: Array, b: Array, out: Array, n: int) -> Array:
        sizes = np.array([n, a.nbytes, b.nbytes, out.nbytes], np.int64)
        assert self.process is not None and self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(name.encode().ljust(64, b"\0") + sizes.tobytes() + a.tobytes() + b.tobytes())
        self.process.stdin.flush()
        answer = self.process.stdout.read(out.nbytes)
        assert len(answer) == out.nbytes, f"{name} ended the emulated program"
        return np.frombuffer(answer, out.dtype).copy()


def _zig() -> tuple[str, ...]:
    found = subprocess.run([sys.executable, "-m", "ziglang", "version"], capture_output=True, check=False)
    return (sys.executable, "-m", "ziglang", "cc") if found.returncode == 0 else ()


def _host_levels() -> list[tuple[str, int]]:
    if platform.machine() != "x86_64":
        return [("armv8-a", 16)]
    flags = Path("/proc/cpuinfo").read_text().split()
    native = [(level, bytes_) for level, bytes_ in zip(LEVEL_FEATURES, (16, 32, 64), strict=True)]
    levels = [(level, size) for level, size in native if LEVEL_FEATURES[level] in flags]
    return levels + ([("x86-64-v3", 64)] if "avx2" in flags else [])


def _builds() -> Iterator[Any]:
    """One compiler at the level most machines run; in the full suite every other pair, and AArch64 by emulation."""
    compilers = [(path,) for path in map(shutil.which, ("gcc", "clang")) if path]
    zig = _zig()
    everyone = compilers + ([zig] if zig else [])
    pairs = [(compiler, level) for compiler in everyone for level in _host_levels()]
    usual = next((pair for pair in pairs if pair[1] == ("x86-64-v3", 32)), pairs[0] if pairs else None)
    for compiler, (march, size) in pairs:
        build = Build(compiler, march, size)
        marks = [] if (compiler, (march, size)) == usual else [pytest.mark.full]
        yield pytest.param(build, id=build.title, marks=marks)
    emulator = shutil.which("qemu-aarch64")
    if zig and emulator and AARCH64_ROOT.exists() and platform.machine() == "x86_64":
        build = Build((*zig, "-target", "aarch64-linux-gnu"), "generic", 16, (emulator, "-L", str(AARCH64_ROOT)))
        yield pytest.param(build, id="zig-aarch64-16", marks=[pytest.mark.full])


@pytest.fixture(scope="session", params=list(_builds()))
def harness_of(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Harness]]:
    """Gives a function from a harness source to its compiled form; each source is compiled once per build."""
    folder = tmp_path_factory.mktemp("harness")
    made: dict[str, Harness] = {}

    def build(source: str) -> Harness:
        if source not in made:
            made[source] = Harness(request.param, source, folder)
        return made[source]

    yield build
    for harness in made.values():
        harness.close()
