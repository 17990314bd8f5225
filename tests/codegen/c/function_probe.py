"""Functions in C as numpy calls them: a probe of this folder, built for a CPU level.

Input: `<name>_probe.c`, a `Build`. Output: `FunctionProbe`, which calls a function with arrays. Invariant: a build that
this machine cannot run skips the test.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
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


BUILDS = {
    "v2": Build("x86-64-v2", 16, "sse4_2"),
    "v3": Build("x86-64-v3", 32, "avx2"),
    "v4": Build("x86-64-v4", 64, "avx512bw"),
}


def runs_here(build: Build) -> bool:
    return build.needs in host_features() and shutil.which("gcc") is not None


class FunctionProbe:
    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))

    def use_features(self, every: bool) -> None:
        """Those of this CPU, or those of the build alone."""
        self.library.probe_features(every)

    def call(
        self, name: str, operands: Sequence[np.ndarray | None], numbers: Sequence[int], processors: int,
        factors: Sequence[float] = (),
    ) -> None:  # fmt: skip
        arrays = [None if x is None else np.ascontiguousarray(x) for x in operands]
        buffers = (ctypes.c_void_p * len(arrays))(*[None if x is None else x.ctypes.data for x in arrays])
        sizes, scales = (ctypes.c_int64 * len(numbers))(*numbers), (ctypes.c_double * len(factors))(*factors)
        assert getattr(self.library, name)(buffers, sizes, scales, ctypes.c_int64(processors)) == 0


def built(name: str, build: Build, folder: Path) -> Path:
    """The library of `<name>_probe.c`."""
    if not runs_here(build):
        pytest.skip(f"no {build.march} here")
    path = folder / f"{name}-{build.march}-{build.vector_bytes}.so"
    source = [
        f"-march={build.march}",
        f"-DSMELT_VL={build.vector_bytes}",
        f"-I{INCLUDE}",
        str(HERE / f"{name}_probe.c"),
    ]
    subprocess.run(["gcc", *FLAGS, *build.flags, *source, "-o", str(path)], check=True)
    return path
