"""The commands of a build.

Input: a compiler, a target, file names. Output: argument lists. Invariant: file names are relative to the working
folder, so that no absolute path gets into an object; include folders come last and are not part of any key.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from smelt.base import Target
from smelt.toolchain.compiler import Compiler

_COMMON: Final = (
    "-std=gnu11",
    "-O2",
    "-fwrapv",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-stack-protector",
    "-U_FORTIFY_SOURCE",
    "-g0",
    # A tile that begins elsewhere in a cache line, because another unit has grown, may be 4% slower.
    "-falign-functions=64",
    "-falign-loops=64",
    # The linker leaves out functions that nothing in the library calls.
    "-ffunction-sections",
    "-fdata-sections",
)
# Code that chooses a level must itself run everywhere.
_PLAIN_MARCH: Final = {"x86-64": "x86-64", "aarch64": "armv8-a"}
_PLAIN_MCPU: Final = {"x86-64": "x86_64", "aarch64": "generic"}
# zig checks for undefined behaviour in what is not optimized (-O0, -Og), by functions that no library here has.
_ZIG_COMPILE: Final = ("-fno-sanitize=undefined",)
_ZIG_TRIPLE: Final = {"x86-64": "x86_64-linux-gnu.2.17", "aarch64": "aarch64-linux-gnu.2.17"}


def level_flags(compiler: Compiler, target: Target, extra: Iterable[str]) -> tuple[str, ...]:
    """Flags of a unit that is compiled once for each level."""
    if compiler.kind == "zig":
        machine = ("-target", _ZIG_TRIPLE[target.arch], f"-mcpu={target.mcpu}", *_ZIG_COMPILE)
    else:
        machine = (f"-march={target.march}",)
    return (*machine, *_COMMON, *target.extra_flags, *target.defines, *extra)


def plain_flags(compiler: Compiler, targets: tuple[Target, ...], extra: Iterable[str]) -> tuple[str, ...]:
    """Flags of a unit that is compiled once: for any CPU, and told by SMELT_HAVE_* which levels exist."""
    arch = targets[0].arch
    if compiler.kind == "zig":
        machine = ("-target", _ZIG_TRIPLE[arch], f"-mcpu={_PLAIN_MCPU[arch]}", *_ZIG_COMPILE)
    else:
        machine = (f"-march={_PLAIN_MARCH[arch]}",)
    have = tuple(f"-DSMELT_HAVE_{target.name}=1" for target in targets)
    return (*machine, *_COMMON, *have, *extra)


def compile_command(
    compiler: Compiler, flags: tuple[str, ...], source: str, output: str, include_dirs: Iterable[Path]
) -> tuple[str, ...]:
    include = [part for folder in include_dirs for part in ("-I", str(Path(folder).absolute()))]
    return (*compiler.argv, *flags, "-c", source, "-o", output, *include)


def library_flags(compiler: Compiler, arch: str) -> tuple[str, ...]:
    """Flags that link a library which needs nothing but what its host process holds already."""
    shared = ("-shared", "-nostdlib", "-g0", "-Wl,--gc-sections")
    if compiler.kind == "zig":
        return ("-target", _ZIG_TRIPLE[arch], f"-mcpu={_PLAIN_MCPU[arch]}", *shared)
    return (*shared, "-Wl,--build-id=none", "-Wl,--exclude-libs,ALL")


def program_flags(compiler: Compiler, arch: str) -> tuple[str, ...]:
    """Flags that link an executable against the C library."""
    if compiler.kind == "zig":
        return ("-target", _ZIG_TRIPLE[arch], f"-mcpu={_PLAIN_MCPU[arch]}", "-g0", "-lpthread")
    return ("-g0", "-pthread", "-Wl,--build-id=none")
