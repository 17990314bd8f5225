"""Source -> Library.

Input: a `Source`, the CPU levels to build, a compiler and a cache. Output: a `Library` in the cache. Invariant: the
same source, headers, flags, compiler and targets give the same key, and a key is built once, whoever asks.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from smelt.base import (
    CodegenError,
    CompileError,
    Config,
    ConfigError,
    Silent,
    Step,
    Target,
    ToolchainError,
    __version__,
)
from smelt.ir.records import Library, Source, Unit
from smelt.toolchain.cache import FORMAT, Cache, CacheEntry, unusable
from smelt.toolchain.compiler import Compiler
from smelt.toolchain.elf import Symbols, read_symbols
from smelt.toolchain.flags import compile_command, level_flags, library_flags, plain_flags, program_flags
from smelt.toolchain.process import Finished, Processes

_UNIT_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
# Names that start so and that the C library defines; other `__` names come from the compiler's own run-time library.
_LIBC_INTERNAL: Final = {"__errno_location", "__stack_chk_fail", "__tls_get_addr", "__cxa_finalize", "__gmon_start__"}
_STDERR_LINES: Final = 40


@dataclass(frozen=True)
class _Job:
    """One compilation."""

    unit: Unit
    target: Target | None
    flags: tuple[str, ...]
    key: str

    @property
    def label(self) -> str:
        return f"{self.unit.name} {self.target.name}" if self.target else self.unit.name

    @property
    def stem(self) -> str:
        return f"{self.unit.name}.{self.target.name if self.target else 'plain'}"


@dataclass(frozen=True)
class _Order:
    """All that decides what a build gives."""

    jobs: tuple[_Job, ...]
    link: tuple[str, ...]
    program: bool
    arch: str
    key: str


def build(
    source: Source,
    targets: tuple[Target, ...],
    compiler: Compiler,
    cache: Cache,
    config: Config,
    *,
    step: Step | None = None,
    program: bool = False,
) -> Library:
    """Find the library in the cache, or compile it. `program` links an executable instead, for debugging.

    `step` is told about each compiled unit; `count_jobs` says how many there are.
    """
    started = time.monotonic()
    order = _order(source, targets, compiler, config, program)
    entry = cache.find(order.key)
    if entry is not None:
        return _library(entry, targets, started, cached=True)
    with cache.lock(order.key, _patience_s(order, config)):
        entry = cache.find(order.key)
        if entry is not None:
            return _library(entry, targets, started, cached=True)
        run = _Run(order, source, compiler, cache, config, step or Silent().task(""))
        entry = run.build(targets, started)
    return _library(entry, targets, started, cached=False)


def can_build(targets: tuple[Target, ...], compiler: Compiler, cache: Cache, config: Config) -> bool:
    """Whether the compiler and its flags are good for anything: a library of next to nothing can be made."""
    exported = '__attribute__((visibility("default"))) int smelt_probe = 1;\n'
    units = Unit("probe", "typedef int smelt_probe_type;\n"), Unit("glue", exported, per_level=False)
    try:
        build(Source(units, ()), targets, compiler, cache, config)
    except ToolchainError:
        return False
    return True


def library_key(
    source: Source, targets: tuple[Target, ...], compiler: Compiler, config: Config, *, program: bool = False
) -> str:
    """The key that `build` would look up."""
    return _order(source, targets, compiler, config, program).key


def count_jobs(source: Source, targets: tuple[Target, ...]) -> int:
    """How often `build` will call `step` if nothing is cached: once per compilation and once for the link."""
    return sum(len(targets) if unit.per_level else 1 for unit in source.units) + 1


def hash_headers(include_dirs: Iterable[Path]) -> str:
    """A digest of the names and contents of all files below the folders; where the folders lie does not matter."""
    digest = hashlib.sha256()
    for folder in include_dirs:
        for path in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
        digest.update(b"\n")
    return digest.hexdigest()


# What decides the key


def _order(source: Source, targets: tuple[Target, ...], compiler: Compiler, config: Config, program: bool) -> _Order:
    arch = _check(source, targets)
    try:
        extra = tuple(shlex.split(config.cflags))
    except ValueError as error:
        raise ConfigError("SM-CONFIG-001", f"SMELT_CFLAGS={config.cflags!r}: {error}") from error
    headers = source.include_hash or hash_headers(source.include_dirs)
    jobs = tuple(_jobs(source, targets, compiler, extra, headers))
    link = program_flags(compiler, arch) if program else library_flags(compiler, arch)
    facts = [FORMAT, [[job.stem, job.key] for job in jobs], link, compiler.identity, program, source.domain]
    return _Order(jobs, link, program, arch, _digest(facts))


def _check(source: Source, targets: tuple[Target, ...]) -> str:
    arches = {target.arch for target in targets}
    if len(arches) != 1:
        raise ConfigError("SM-CONFIG-004", f"a library needs levels of one architecture, not of {sorted(arches)}")
    names = [unit.name for unit in source.units]
    for name in names:
        if not _UNIT_NAME.fullmatch(name) or names.count(name) > 1:
            raise CodegenError("SM-CODEGEN-002", f"{name!r} is not an identifier or is used twice")
    return arches.pop()


def _jobs(
    source: Source, targets: tuple[Target, ...], compiler: Compiler, extra: tuple[str, ...], headers: str
) -> Iterable[_Job]:
    for unit in source.units:
        for target in targets if unit.per_level else (None,):
            more = (*(() if unit.optimize == 2 else (f"-O{unit.optimize}",)), *extra)
            flags = level_flags(compiler, target, more) if target else plain_flags(compiler, targets, more)
            key = _digest([FORMAT, unit.name, unit.text, headers, flags, compiler.identity])
            yield _Job(unit, target, flags, key)


def _digest(facts: object) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _patience_s(order: _Order, config: Config) -> float:
    # Longer than any build that ends by its own limits, so that only a stuck holder is given up on.
    return config.compile_timeout_s * (len(order.jobs) + 2)


def _library(entry: CacheEntry, targets: tuple[Target, ...], started: float, *, cached: bool) -> Library:
    return Library(
        path=entry.path,
        sha256=entry.sha256,
        key=entry.key,
        targets=tuple(target.name for target in targets),
        compiler=str(entry.meta.get("compiler", "")),
        seconds=time.monotonic() - started,
        cached=cached,
    )


# One build


class _Run:
    """A build under way: compiles what no object is cached for, links, checks, and hands over to the cache."""

    def __init__(
        self, order: _Order, source: Source, compiler: Compiler, cache: Cache, config: Config, step: Step
    ) -> None:
        self.order = order
        self.source = source
        self.compiler = compiler
        self.cache = cache
        self.config = config
        self.step = step
        self.processes = Processes()
        self.failures: list[BaseException] = []

    def build(self, targets: tuple[Target, ...], started: float) -> CacheEntry:
        try:
            return self._build(targets, started)
        except OSError as error:
            raise unusable(self.cache.root, error) from error

    def _build(self, targets: tuple[Target, ...], started: float) -> CacheEntry:
        with self.cache.work() as folder:
            objects = self._compile_all(folder)
            output = self._link(folder, objects)
            self.step("link")
            meta = {
                "smelt": __version__,
                "compiler": self.compiler.identity,
                "arch": self.order.arch,
                "targets": [target.name for target in targets],
                "link": list(self.order.link),
                "created": int(time.time()),
                "seconds": round(time.monotonic() - started, 3),
            }
            return self.cache.put(self.order.key, output, meta, "" if self.order.program else ".so")

    def _compile_all(self, folder: Path) -> list[Path]:
        workers = self.config.jobs or len(os.sched_getaffinity(0))
        with ThreadPoolExecutor(max(1, workers)) as pool:
            futures = [pool.submit(self._object_or_stop, job, folder) for job in self.order.jobs]
            try:
                wait(futures)
            except BaseException:
                self.processes.stop()
                raise
        # Later ones only failed because the first one stopped them.
        if self.failures:
            raise self.failures[0]
        return [future.result() for future in futures]

    def _object_or_stop(self, job: _Job, folder: Path) -> Path:
        try:
            return self._object(job, folder)
        except BaseException as error:
            self.failures.append(error)
            self.processes.stop()
            raise

    def _object(self, job: _Job, folder: Path) -> Path:
        cached = self.cache.find_object(job.key)
        place = folder / f"{job.stem}.o"
        if cached is None or not _take(cached, place):
            self._compile(job, folder / job.stem, place)
        self.step(job.label)
        return place

    def _compile(self, job: _Job, own: Path, place: Path) -> None:
        # Each compilation has its own folder, so that the file's name, which may end up in the object, is the
        # unit's name alone.
        own.mkdir(mode=0o700)
        source = own / f"{job.unit.name}.c"
        source.write_text(job.unit.text, encoding="utf-8")
        command = compile_command(self.compiler, job.flags, source.name, "out.o", self.source.include_dirs)
        try:
            self._run(command, own, job.label, output="out.o")
        except CompileError as error:
            error.unit = job.unit.name
            raise
        _take(own / "out.o", place)
        self.cache.put_object(job.key, own / "out.o")

    def _link(self, folder: Path, objects: list[Path]) -> Path:
        names = [path.name for path in objects]
        base = (*self.compiler.argv, *self.order.link, *names, "-o", "linked")
        helpers = self._helper_library(folder)
        self._run((*base, *helpers), folder, "link", output="linked")
        output = folder / "linked"
        if self.order.program:
            return output
        symbols = _symbols(output)
        # zig has no archive to name. Its run-time library brings a slow memcpy, so it is linked only when needed, and
        # debug information with absolute paths, so it is stripped.
        if self.compiler.kind == "zig" and _needs_helpers(symbols):
            self._run((*base, "-rtlib=compiler-rt", "-s"), folder, "link", output="linked")
            symbols = _symbols(output)
        if not symbols.exported:
            raise ToolchainError("SM-TOOL-006", "the library exports no symbol, so nothing can be called in it")
        if missing := sorted(name for name in symbols.needed if name.startswith("smelt_")):
            raise ToolchainError("SM-TOOL-006", f"no unit defines {', '.join(missing)}")
        return output

    def _helper_library(self, folder: Path) -> tuple[str, ...]:
        """The archive with the compiler's own helper functions, such as 128-bit division."""
        if self.compiler.kind == "zig" or self.order.program:
            return ()
        answer = self._run((*self.compiler.argv, "-print-libgcc-file-name"), folder, "link")
        archive = answer.stdout.strip()
        return (archive,) if Path(archive).is_file() else ()

    def _run(self, command: tuple[str, ...], folder: Path, label: str, output: str = "") -> Finished:
        changes = {"TMPDIR": str(folder)}
        if self.compiler.kind == "zig":
            changes |= self.cache.zig_environment()
        limit_s = self.config.compile_timeout_s
        try:
            answer = self.processes.run(command, folder, limit_s, changes)
        except OSError as error:
            message = f"{command[0]} does not start: {error.strerror}"
            raise CompileError("SM-TOOL-002", message, command=command) from error
        if answer.code is None:
            message = f"{label}: stopped after {limit_s:g} s: {shlex.join(command)}"
            raise CompileError("SM-TOOL-005", message, command=command, stderr=answer.stderr)
        if answer.code != 0:
            raise _failure(label, command, answer, f"the compiler ended with {answer.code}")
        if not (folder / output).exists():
            raise _failure(label, command, answer, "the compiler wrote nothing")
        return answer


def _failure(label: str, command: tuple[str, ...], answer: Finished, what: str) -> CompileError:
    tail = "\n".join(answer.stderr.strip().splitlines()[-_STDERR_LINES:])
    message = f"{label}: {what}\n{tail}\n  command: {shlex.join(command)}"
    return CompileError("SM-TOOL-004", message, command=command, stderr=answer.stderr)


def _symbols(library: Path) -> Symbols:
    try:
        return read_symbols(library)
    except ValueError as error:
        raise ToolchainError("SM-TOOL-006", f"what was linked is not a library: {error}") from error


def _needs_helpers(symbols: Symbols) -> bool:
    return any(name.startswith("__") and name not in _LIBC_INTERNAL for name in symbols.needed)


def _take(source: Path, place: Path) -> bool:
    """Give `source` a second name, or copy it; False where a concurrent `cache clear` was faster."""
    try:
        os.link(source, place)
    except FileNotFoundError:
        return False
    except OSError:
        shutil.copyfile(source, place)
    return True
