"""Find a C compiler.

Input: the knobs and an architecture. Output: a `Compiler`, or `NoCompilerError`. Invariant: a returned compiler
was started once and said what it is; its identity changes when another compiler takes its place.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from smelt.base import Config, NoCompilerError, host_arch, levels_of
from smelt.toolchain.process import Processes

# The first releases that know -march=x86-64-v3.
_OLDEST: Final = {"gcc": 11, "clang": 12}
_ARCH_MACROS: Final = {"__x86_64__": "x86-64", "__aarch64__": "aarch64"}
# Compilers that define gcc's macros without being it.
_IMITATORS: Final = {"__INTEL_COMPILER", "__PGI", "__NVCOMPILER", "__TINYC__", "__CUDACC__"}
_PROBE_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True)
class Compiler:
    """A C compiler. `argv` starts every command; `arches` are what it makes code for, empty for any."""

    kind: str
    argv: tuple[str, ...]
    version: str
    identity: str
    arches: tuple[str, ...] = ()

    def makes(self, arch: str) -> bool:
        return not self.arches or arch in self.arches


@dataclass(frozen=True)
class Candidate:
    """One place that was searched: what was found there, or why it cannot be used. `doctor` prints these."""

    origin: str
    argv: tuple[str, ...]
    compiler: Compiler | None
    reason: str = ""


def find_compiler(config: Config, arch: str | None = None) -> Compiler:
    """The first compiler that makes code for `arch` (this machine's where not given).

    A compiler named by SMELT_CC is used or refused, never passed over; one named by CC is only preferred, since
    that variable is often set for other tools.
    """
    wanted = arch or host_arch()
    for candidate in _candidates(config.cc, config.cc_from, config.search_path, wanted):
        if candidate.compiler is not None and candidate.compiler.makes(wanted):
            return candidate.compiler
        if candidate.origin == "SMELT_CC":
            raise _refuse(candidate, wanted)
    if wanted != host_arch():
        raise NoCompilerError("SM-TOOL-003", f"no compiler here makes code for {wanted}")
    raise NoCompilerError("SM-TOOL-001", "no C compiler was found")


def list_compilers(config: Config, arch: str | None = None) -> tuple[Candidate, ...]:
    """Everything that the search looks at, in order."""
    return tuple(_candidates(config.cc, config.cc_from, config.search_path, arch or host_arch()))


def _refuse(candidate: Candidate, arch: str) -> NoCompilerError:
    named = shlex.join(candidate.argv)
    if candidate.compiler is not None:
        return NoCompilerError("SM-TOOL-003", f"SMELT_CC={named!r} makes no code for {arch}")
    return NoCompilerError("SM-TOOL-002", f"SMELT_CC={named!r} cannot be used: {candidate.reason}")


def _candidates(cc: str | None, cc_from: str, search_path: str, arch: str) -> Iterator[Candidate]:
    if cc is not None:
        yield _named(cc_from or "SMELT_CC", cc, search_path)
    system = [(name, (name,)) for name in ("cc", "gcc", "clang")]
    zig = [("zig", ("zig", "cc")), ("ziglang package", ("ziglang", "cc"))]
    cross = [(f"{arch}-linux-gnu-gcc", (f"{arch}-linux-gnu-gcc",))]
    for origin, argv in [*system, *zig] if arch == host_arch() else [*zig, *cross]:
        yield _inspect(origin, argv, search_path)


def _named(origin: str, text: str, search_path: str) -> Candidate:
    try:
        argv = tuple(shlex.split(text))
    except ValueError as error:
        return Candidate(origin, (text,), None, f"its quotes do not match ({error})")
    if not argv:
        return Candidate(origin, (text,), None, "it is empty")
    if argv in {("zig",), ("ziglang",)}:
        argv = (argv[0], "cc")
    if argv[0] == "zig" and shutil.which("zig", path=search_path) is None:
        argv = ("ziglang", *argv[1:])
    return _inspect(origin, argv, search_path)


@lru_cache(maxsize=64)
def _inspect(origin: str, argv: tuple[str, ...], search_path: str) -> Candidate:
    program = _locate(argv[0], search_path)
    if program is None:
        return Candidate(origin, argv, None, f"{argv[0]!r} was not found")
    found = (program, *argv[1:])
    try:
        compiler = _probe_zig(found) if _is_zig(found) else _probe(found)
    except _UnusableError as error:
        return Candidate(origin, argv, None, str(error))
    return Candidate(origin, found, compiler)


class _UnusableError(Exception):
    """A candidate did not start, or is not a compiler that we know."""


def _locate(program: str, search_path: str) -> str | None:
    if program == "ziglang":
        return _zig_of_package()
    found = shutil.which(program, path=search_path)
    return str(Path(found).absolute()) if found else None


def _zig_of_package() -> str | None:
    spec = importlib.util.find_spec("ziglang")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        program = Path(folder) / "zig"
        if program.is_file():
            return str(program)
    return None


def _is_zig(argv: tuple[str, ...]) -> bool:
    return "cc" in argv[1:] and any(Path(part).name in {"zig", "ziglang"} for part in argv)


def _probe_zig(argv: tuple[str, ...]) -> Compiler:
    version = _first_line(_ask((*argv[: argv.index("cc")], "version")))
    return Compiler("zig", argv, version, _identity("zig", version, "any", argv))


def _probe(argv: tuple[str, ...]) -> Compiler:
    """Ask for the predefined macros: they say what the compiler is and what it makes code for, in one answer."""
    macros = dict(re.findall(r"^#define (\w+) (.+)$", _ask((*argv, "-dM", "-E", "-x", "c", "-")), re.MULTILINE))
    kind, version = _recognize(macros)
    if int(version.split(".")[0]) < _OLDEST[kind]:
        raise _UnusableError(f"{kind} {version} is older than {_OLDEST[kind]}")
    arch = next((name for macro, name in _ARCH_MACROS.items() if macro in macros), "")
    if not arch or "__linux__" not in macros or "__ILP32__" in macros:
        raise _UnusableError("it makes no code for 64-bit x86 or ARM Linux")
    if kind == "clang" and not _knows_clang_flags(argv, arch):
        return Compiler("zig", argv, version, _identity("zig", version, "any", argv))
    return Compiler(kind, argv, version, _identity(kind, version, arch, argv), (arch,))


def _knows_clang_flags(argv: tuple[str, ...], arch: str) -> bool:
    """False for zig behind a wrapper script: its macros are those of clang, but it spells CPUs in its own way."""
    try:
        _ask((*argv, f"-march={levels_of(arch)[0].march}", "-E", "-x", "c", "-"))
    except _UnusableError:
        return False
    return True


def _recognize(macros: dict[str, str]) -> tuple[str, str]:
    if "__clang__" in macros:
        return "clang", ".".join(macros[f"__clang_{part}__"] for part in ("major", "minor", "patchlevel"))
    if "__GNUC__" in macros and not _IMITATORS & macros.keys():
        return "gcc", ".".join(macros[name] for name in ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__"))
    raise _UnusableError("it is not gcc, clang or zig")


def _ask(command: tuple[str, ...]) -> str:
    try:
        answer = Processes().run(command, Path.cwd(), _PROBE_TIMEOUT_S, {})
    except OSError as error:
        raise _UnusableError(f"it does not start ({error.strerror})") from error
    if answer.code is None:
        raise _UnusableError("it did not answer in time")
    if answer.code != 0:
        raise _UnusableError(f"it ended with {answer.code} when asked what it is")
    return answer.stdout


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    if not lines:
        raise _UnusableError("it says nothing about itself")
    return lines[0].strip()


def _identity(kind: str, version: str, arch: str, argv: tuple[str, ...]) -> str:
    """A readable name plus a digest of the program: its path, size and arguments."""
    program = Path(argv[0]).resolve()
    facts = [str(program), str(program.stat().st_size), *argv[1:]]
    digest = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:12]
    return f"{kind} {version} {arch} {digest}"
