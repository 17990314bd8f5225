"""The C compilers that tests build small programs with: gcc and clang where they are, else the ziglang wheel."""

from __future__ import annotations

import shutil
import sys

NAMES = [name for name in ("gcc", "clang") if shutil.which(name)] or ["zig"]
HOST = NAMES[0]


def command(name: str = HOST) -> list[str]:
    return [sys.executable, "-m", "ziglang", "cc"] if name == "zig" else [name]


def march(level: str, name: str = HOST) -> str:
    """`x86-64-v3`, as the compiler spells it."""
    return f"-march={level.replace('-', '_') if name == 'zig' else level}"
