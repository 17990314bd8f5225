"""The compilations of a source.

Input: a `Source`, CPU levels, a compiler and the knobs. Output: `Job`s with their keys; their objects, in the cache.
Invariant: a key covers the text, the headers, the flags and the compiler, and nothing else.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from smelt.base import CompileError, Config, ConfigError, Target, ToolchainError
from smelt.base.cache import FORMAT, Cache, unusable
from smelt.base.cpus import usable_cpus
from smelt.ir.records import Source, Unit
from smelt.toolchain.bounds import BOUNDS_FLAGS
from smelt.toolchain.compiler import Compiler
from smelt.toolchain.flags import compile_command, level_flags, plain_flags
from smelt.toolchain.prebuilt import Prebuilt, find_prebuilt, prebuild, prebuilt_facts
from smelt.toolchain.process import Finished, Processes

_STDERR_LINES: Final = 40
_QUICK_FLAGS: Final = ("-Og",)  # compiled in less time than for size or speed
_FULL: Final = ("No space left on device", "Disk quota exceeded")  # as compilers and linkers say it


@dataclass(frozen=True)
class Job:
    """One compilation; none where the installation has its object."""

    unit: Unit
    target: Target | None
    flags: tuple[str, ...]
    key: str
    prebuilt: Prebuilt | None = None

    @property
    def label(self) -> str:
        return f"{self.unit.name} {self.target.name}" if self.target else self.unit.name

    @property
    def stem(self) -> str:
        return f"{self.unit.name}.{self.target.name if self.target else 'plain'}"


def jobs_of(source: Source, targets: tuple[Target, ...], compiler: Compiler, config: Config) -> tuple[Job, ...]:
    extra = _extra_flags(config)
    headers = source.include_hash or hash_headers(source.include_dirs)
    return tuple(_jobs(source, targets, compiler, extra, headers))


def prebuild_all(
    source: Source, targets: tuple[Target, ...], compiler: Compiler, cache: Cache, config: Config, folder: Path
) -> tuple[int, int]:
    """Compile all units of a source for an installation. How many objects it has now, and how many are new."""
    headers = hash_headers(source.include_dirs)
    flagged = [(unit, target, _level_of(unit)) for unit in source.units for target in targets]
    jobs = [
        (
            digest_of(prebuilt_facts(unit, target, headers, more)),
            Job(unit, target, level_flags(compiler, target, more), ""),
        )
        for unit, target, more in flagged
    ]
    workers = config.jobs or usable_cpus().count
    new = prebuild(jobs, source.include_dirs, Commands(compiler, cache, config), workers, folder)
    return len(jobs), new


def warm(
    source: Source, targets: tuple[Target, ...], compiler: Compiler, cache: Cache, config: Config
) -> tuple[int, int]:
    """Compile what neither the installation nor the cache has. How many objects there are now, and how many are new."""
    jobs = jobs_of(source, targets, compiler, config)
    missing = [job for job in jobs if job.prebuilt is None and cache.find_object(job.key) is None]
    commands = Commands(compiler, cache, config)
    with cache.work() as folder, ThreadPoolExecutor(max(1, config.jobs or usable_cpus().count)) as pool:
        made = [pool.submit(commands.compile, job, source.include_dirs, folder / job.stem) for job in missing]
        for one in made:
            one.result()
    return len(jobs), len(missing)


def _extra_flags(config: Config) -> tuple[str, ...]:
    try:
        extra = tuple(shlex.split(config.cflags))
    except ValueError as error:
        raise ConfigError("SM-CONFIG-001", f"SMELT_CFLAGS={config.cflags!r}: {error}") from error
    return (*(BOUNDS_FLAGS if config.bounds else ()), *extra)


def longest_first(jobs: Iterable[Job]) -> list[Job]:
    """Units as the source has them, which knows its longest; of one unit, the highest level takes longest."""
    jobs = list(jobs)
    places = {name: place for place, name in enumerate(dict.fromkeys(job.unit.name for job in jobs))}
    return sorted(jobs, key=lambda job: (places[job.unit.name], -job.target.index if job.target else 0))


def hash_headers(include_dirs: Iterable[Path]) -> str:
    """A digest of the names and contents of all files below the folders; where the folders lie does not matter."""
    digest = hashlib.sha256()
    for folder in include_dirs:
        for path in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
        digest.update(b"\n")
    return digest.hexdigest()


def _jobs(
    source: Source, targets: tuple[Target, ...], compiler: Compiler, extra: tuple[str, ...], headers: str
) -> Iterable[Job]:
    for unit in source.units:
        for target in targets_of(unit, targets):
            more = (*_level_of(unit), *extra)
            flags = level_flags(compiler, target, more) if target else plain_flags(compiler, targets, more)
            known = find_prebuilt(digest_of(prebuilt_facts(unit, target, headers, more))) if target else None
            maker = compiler.identity if known is None else known.sha256
            yield Job(unit, target, flags, digest_of([FORMAT, unit.name, unit.text, headers, flags, maker]), known)


def _level_of(unit: Unit) -> tuple[str, ...]:
    if unit.rare or unit.optimize == 0:
        return _QUICK_FLAGS
    return () if unit.optimize == 2 else (f"-O{unit.optimize}",)


def targets_of(unit: Unit, targets: tuple[Target, ...]) -> tuple[Target | None, ...]:
    """The levels that a unit is compiled for; None stands for any CPU."""
    if not unit.per_level:
        return (None,)
    return (min(targets, key=lambda target: target.index),) if unit.rare else targets


def digest_of(facts: object) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


class Commands:
    """Runs a build's commands, so that the first failure can stop the others."""

    def __init__(self, compiler: Compiler, cache: Cache, config: Config) -> None:
        self.compiler = compiler
        self.cache = cache
        self.config = config
        self.processes = Processes()

    def compile(self, job: Job, include_dirs: Iterable[Path], own: Path, place: Path | None = None) -> None:
        """The job's object goes to the cache, and to `place`."""
        made = self.compile_apart(job, include_dirs, own)
        if place is not None:
            take(made, place)
        self.cache.put_object(job.key, made)

    def compile_apart(self, job: Job, include_dirs: Iterable[Path], own: Path) -> Path:
        """The job's object, in a folder of its own, so that the file's name, which may end up in the object, is the
        unit's name alone."""
        own.mkdir(mode=0o700)
        source = own / f"{job.unit.name}.c"
        source.write_text(job.unit.text, encoding="utf-8")
        command = compile_command(self.compiler, job.flags, source.name, "out.o", include_dirs)
        try:
            self.run(command, own, job.label, output="out.o")
        except CompileError as error:
            error.unit = job.unit.name
            raise
        return own / "out.o"

    def run(self, command: tuple[str, ...], folder: Path, label: str, output: str = "") -> Finished:
        changes = {"TMPDIR": str(folder)} | ({"LD_PRELOAD": ""} if self.config.bounds else {})
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
            raise _failure(label, command, answer, f"the compiler ended with {answer.code}", self.cache.root)
        if not (folder / output).exists():
            raise _failure(label, command, answer, "the compiler wrote nothing", self.cache.root)
        return answer


def _failure(label: str, command: tuple[str, ...], answer: Finished, what: str, root: Path) -> ToolchainError:
    full = next((text for text in _FULL if text in answer.stderr), None)
    if full is not None:  # not the compiler's fault, and no other one would do better
        return unusable(root, OSError(errno.ENOSPC, full))
    tail = "\n".join(answer.stderr.strip().splitlines()[-_STDERR_LINES:])
    message = f"{label}: {what}\n{tail}\n  command: {shlex.join(command)}"
    return CompileError("SM-TOOL-004", message, command=command, stderr=answer.stderr)


def take(source: Path, place: Path) -> bool:
    """Give `source` a second name, or copy it; False where a concurrent `cache clear` was faster."""
    try:
        os.link(source, place)
    except FileNotFoundError:
        return False
    except OSError:
        shutil.copyfile(source, place)
    return True
