"""Functions in C as numpy calls them: a probe of this folder, built for a CPU level.

Input: `<name>_probe.c`, a `Build`. Output: `FunctionProbe`, which calls a function with arrays. Invariant: a build that
this machine can neither run nor emulate skips the test.
"""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import smelt
from smelt.base.target import host_features

HERE = Path(__file__).parent
INCLUDE = Path(smelt.__file__).parent / "codegen" / "c" / "include"
FLAGS = ("-std=gnu11", "-O2", "-fwrapv", "-ffp-contract=fast", "-fPIC", "-shared", "-g0", "-Wall", "-Wextra", "-Werror")


@dataclass(frozen=True)
class Build:
    """`needs` is what the machine must have: source for wider vectors runs on lesser machines as well."""

    march: str
    vector_bytes: int
    needs: str
    flags: tuple[str, ...] = ()
    cpu: str = ""  # that qemu-aarch64 emulates


def _arm(march: str, cpu: str) -> Build:
    return Build(march, 16, "", ("-O1", "-target", "aarch64-linux-musl", "-static", "-DPROBE_MAIN"), cpu)


BUILDS = {
    "v2": Build("x86-64-v2", 16, "sse4_2"),
    "v3": Build("x86-64-v3", 32, "avx2"),
    "v4": Build("x86-64-v4", 64, "avx512bw"),
}

# NEON alone; dot products; those and products of two rows and two columns.
EMULATED = {
    "neon": _arm("generic", "cortex-a53"),
    "dotprod": _arm("generic+v8_2a+fullfp16", "neoverse-n1"),
    "i8mm": _arm("generic+v8_2a+fullfp16", "max"),
}


def runs_here(build: Build) -> bool:
    if build.cpu:
        return shutil.which("qemu-aarch64") is not None and importlib.util.find_spec("ziglang") is not None
    return build.needs in host_features() and shutil.which("gcc") is not None


class FunctionProbe:
    def __init__(self, path: Path, cpu: str = "") -> None:
        self.library = None if cpu else ctypes.CDLL(str(path))
        command = ("qemu-aarch64", "-cpu", cpu, str(path))
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe) if cpu else None
        self.every = True

    def use_features(self, every: bool) -> None:
        """Those of this CPU, or those of the build alone."""
        self.every = every
        if self.library is not None:
            self.library.probe_features(every)

    def close(self) -> None:
        if self.process is not None:
            self.process.communicate(timeout=60)

    def call(
        self, name: str, operands: Sequence[np.ndarray | None], numbers: Sequence[int], processors: int,
        factors: Sequence[float] = (),
    ) -> None:  # fmt: skip
        arrays = [None if x is None else np.ascontiguousarray(x) for x in operands]
        if self.library is None:
            self._call_emulated(name, arrays, numbers, processors, factors)
            return
        buffers = (ctypes.c_void_p * len(arrays))(*[None if x is None else x.ctypes.data for x in arrays])
        sizes, scales = (ctypes.c_int64 * len(numbers))(*numbers), (ctypes.c_double * len(factors))(*factors)
        assert getattr(self.library, name)(buffers, sizes, scales, ctypes.c_int64(processors)) == 0

    def _call_emulated(
        self, name: str, arrays: Sequence[np.ndarray | None], numbers: Sequence[int], processors: int,
        factors: Sequence[float],
    ) -> None:  # fmt: skip
        assert self.process is not None and self.process.stdin is not None and self.process.stdout is not None
        counts = [len(arrays), len(numbers), len(factors), processors, int(self.every)]
        sizes = [-1 if x is None else x.nbytes for x in arrays]
        whole = np.array([*counts, *sizes, *numbers], np.int64).tobytes() + np.array(factors, np.float64).tobytes()
        contents = b"".join(b"" if x is None else x.tobytes() for x in arrays)
        self.process.stdin.write(name.encode().ljust(64, b"\0") + whole + contents)
        self.process.stdin.flush()
        answer = self.process.stdout.read(8 + len(contents))
        assert len(answer) == 8 + len(contents), f"{name} ended the emulated program"
        assert int.from_bytes(answer[:8], "little") == 0
        position = 8
        for x in arrays:
            if x is not None:
                np.copyto(x, np.frombuffer(answer, x.dtype, x.size, position).reshape(x.shape))
                position += x.nbytes


def built(name: str, build: Build, folder: Path) -> Path:
    """The library of `<name>_probe.c`, or a program of it for an emulated CPU."""
    if not runs_here(build):
        pytest.skip(f"no {build.march} here")
    path = folder / f"{name}-{build.cpu or build.march}-{build.vector_bytes}.so"
    source = [
        f"-march={build.march}",
        f"-DSMELT_VL={build.vector_bytes}",
        f"-I{INCLUDE}",
        str(HERE / f"{name}_probe.c"),
    ]
    flags = [flag for flag in FLAGS if not build.cpu or flag not in ("-shared", "-Werror")]
    compiler = [sys.executable, "-m", "ziglang", "cc"] if build.cpu else ["gcc"]
    subprocess.run([*compiler, *flags, *build.flags, *source, "-o", str(path)], check=True)
    return path
