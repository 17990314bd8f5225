"""Libraries that check bounds: AddressSanitizer and UndefinedBehaviorSanitizer in every kernel (`SMELT_BOUNDS=1`).

Input: a compiler. Output: the flags of a compilation, and what the environment of a process needs. Invariant: such a
library is built only where it can be loaded: its run-time library must be the first one of the process.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Final

from smelt.base import ConfigError
from smelt.toolchain.compiler import Compiler
from smelt.toolchain.process import Processes

# -O1: kernels are compiled twice as fast as with -O2, and no access is taken for dead.
BOUNDS_FLAGS: Final = ("-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
# ONNX Runtime throws, and the sanitizer wants to know by whose function before the first library throws.
_RUN_TIME: Final = ("libasan.so", "libubsan.so", "libstdc++.so.6")
_OPTIONS: Final = "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1:print_legend=0"
_TIMEOUT_S: Final = 30.0


def bounds_environment(compiler: Compiler) -> dict[str, str]:
    """Variables for a process that loads libraries which check bounds."""
    if compiler.kind != "gcc":
        raise ConfigError("SM-CONFIG-008", f"SMELT_BOUNDS needs gcc, and the compiler is {compiler.identity}")
    answers = [
        Processes().run((*compiler.argv, f"-print-file-name={name}"), Path.cwd(), _TIMEOUT_S, {}) for name in _RUN_TIME
    ]
    places = [Path(answer.stdout.strip()) for answer in answers]
    if missing := [place.name for place in places if not place.is_absolute()]:
        raise ConfigError("SM-CONFIG-008", f"{compiler.identity} has no {', '.join(missing)}")
    return {"LD_PRELOAD": " ".join(map(str, places)), "ASAN_OPTIONS": _OPTIONS, "SMELT_BOUNDS": "1"}


def sanitizer_is_loaded() -> bool:
    return hasattr(ctypes.CDLL(None), "__asan_init")


def require_sanitizer(compiler: Compiler) -> None:
    if sanitizer_is_loaded():
        return
    wanted = bounds_environment(compiler)
    raise ConfigError("SM-CONFIG-008", f"start the process with LD_PRELOAD={wanted['LD_PRELOAD']!r}")
