"""The mock driver as an object, and a session that runs device kernels on it.

Input: an artifact compiled by the Triton backend. Output: results of stock ONNX Runtime, in which every launch was run
by Triton's interpreter. Invariant: the mock is built once per process by the system's C compiler.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from executor import launch, load_module

from smelt.codegen.triton.kernel import Config, TritonKernel

_CALLBACK = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint), ctypes.c_uint, ctypes.c_uint, ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
)  # fmt: skip
_ANYWHERE = [(0, 2**63)]
COMPILE = ("cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g")


@cache
def mock_library(folder: Path, kind: str = "cuda") -> Path:
    """`kind`: cuda or hip."""
    made = folder / f"lib{kind}_mock.so"
    source = Path(__file__).parent / f"mock_{kind}.c"
    subprocess.run([*COMPILE, "-shared", "-fPIC", str(source), "-o", str(made), "-lpthread"], check=True)
    return made


def _kind(spelled: str) -> Any:
    """What a parameter points to, by Triton's name of its type."""
    kinds: dict[str, Any] = {"i1": ctypes.c_uint8, "i32": ctypes.c_int32, "i64": ctypes.c_int64, "fp32": ctypes.c_float}
    return ctypes.c_uint64 if spelled.startswith("*") else kinds[spelled]


class Mock:
    """`launches` are what the driver was asked to run: function, grid, threads, shared, stream, hidden pointers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.library = ctypes.CDLL(str(path))
        self.library.mock_log.restype = ctypes.c_char_p
        self.library.mock_reset()
        self.launches: list[tuple[str, int, int, int, int | None]] = []
        self.errors: list[BaseException] = []
        self.kernels: dict[str, tuple[TritonKernel, Config]] = {}
        self._callback = _CALLBACK(self._launched)

    def log(self) -> list[str]:
        return self.library.mock_log().decode().splitlines()

    def calls(self, name: str) -> list[str]:
        return [line for line in self.log() if line.split()[0] == name]

    def set(self, capability: int = 80, devices: int = 1, context: int = 1, old: int = 0, device: int = 0) -> None:
        self.library.mock_set(capability, devices, context, old, device)

    def fail(self, call: str, code: int) -> None:
        self.library.mock_fail(call.encode(), code)

    def interpret(self, kernels: Mapping[str, TritonKernel]) -> None:
        """Launches of these kernels are run from here on."""
        for kernel in kernels.values():
            for config in kernel.configs:
                self.kernels.setdefault(f"{config.function}:{config.rows}", (kernel, config))
        self.library.mock_on_launch(self._callback)

    def _launched(self, name: bytes, grid: Any, threads: int, shared: int, stream: int | None, parameters: Any) -> None:
        function = name.decode()
        self.launches.append((function, grid[0], threads, shared, stream))
        try:
            kernel, config = next(v for k, v in self.kernels.items() if k.startswith(f"{function}:"))
            kinds = enumerate(kernel.signature.values())
            values = [ctypes.cast(parameters[i], ctypes.POINTER(_kind(kind)))[0] for i, kind in kinds]
            hidden = [ctypes.cast(parameters[len(values) + i], ctypes.POINTER(ctypes.c_uint64))[0] for i in (0, 1)]
            assert hidden == [0, 0], hidden
            made = getattr(load_module(kernel.text, kernel.name), function)
            launch(made, kernel.signature, values, dict(config.constants), tuple(grid[:3]), _ANYWHERE, _ANYWHERE)
        except BaseException as error:  # a callback of C has nobody to raise to
            self.errors.append(error)
