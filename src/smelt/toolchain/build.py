"""Source -> Library.

Input: a `Source`, the CPU levels to build, a compiler and a cache. Output: a `Library` in the cache. Invariant: the
same source, headers, flags, compiler and targets give the same key, and a key is built once, whoever asks.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from smelt.base import (
    CodegenError,
    Config,
    ConfigError,
    Silent,
    Step,
    Target,
    ToolchainError,
    __version__,
)
from smelt.base.cache import FORMAT, Cache, CacheEntry, unusable
from smelt.base.cpus import usable_cpus
from smelt.base.log import logger
from smelt.ir.records import Library, Source, Unit
from smelt.toolchain.bounds import BOUNDS_FLAGS, require_sanitizer
from smelt.toolchain.compiler import Compiler
from smelt.toolchain.early import EarlyObjects
from smelt.toolchain.elf import Symbols, read_symbols
from smelt.toolchain.flags import library_flags, program_flags
from smelt.toolchain.jobs import Commands, Job, digest_of, jobs_of, longest_first, take, targets_of

_log: Final = logger("toolchain")
_UNIT_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
# Names that start so and that the C library defines; other `__` names come from the compiler's own run-time library.
_LIBC_INTERNAL: Final = {"__errno_location", "__stack_chk_fail", "__tls_get_addr", "__cxa_finalize", "__gmon_start__"}


@dataclass(frozen=True)
class _Order:
    """All that decides what a build gives."""

    jobs: tuple[Job, ...]
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
    early: EarlyObjects | None = None,
) -> Library:
    """Find the library in the cache, or compile it. `program` links an executable instead, for debugging.

    `step` is told about each compiled unit; `count_jobs` says how many there are. `early` may have some.
    """
    started = time.monotonic()
    if config.bounds and not program:
        require_sanitizer(compiler)
    order = _order(source, targets, compiler, config, program)
    entry = cache.find(order.key)
    if entry is not None:
        _log.debug("library %s found in the cache", order.key[:12])
        return _library(entry, targets, started, cached=True)
    with cache.lock(order.key, _patience_s(order, config)):
        entry = cache.find(order.key)
        if entry is not None:
            return _library(entry, targets, started, cached=True)
        run = _Run(order, source, compiler, cache, config, step or Silent().task(""), early)
        entry = run.build(targets, started)
    _log.debug("library %s built by %s in %.2f s", order.key[:12], compiler.identity, time.monotonic() - started)
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


def is_built(source: Source, targets: tuple[Target, ...], compiler: Compiler, cache: Cache, config: Config) -> bool:
    """Whether `build` would find the library in the cache."""
    return cache.find(library_key(source, targets, compiler, config)) is not None


def count_jobs(source: Source, targets: tuple[Target, ...]) -> int:
    """How often `build` will call `step` if nothing is cached: once per compilation and once for the link."""
    return sum(len(targets_of(unit, targets)) for unit in source.units) + 1


# What decides the key


def _order(source: Source, targets: tuple[Target, ...], compiler: Compiler, config: Config, program: bool) -> _Order:
    arch = _check(source, targets)
    jobs = jobs_of(source, targets, compiler, config)
    link = program_flags(compiler, arch) if program else library_flags(compiler, arch)
    link = (*link, *BOUNDS_FLAGS) if program and config.bounds else link
    facts = [FORMAT, [[job.stem, job.key] for job in jobs], link, compiler.identity, program, source.domain]
    return _Order(jobs, link, program, arch, digest_of(facts))


def _check(source: Source, targets: tuple[Target, ...]) -> str:
    arches = {target.arch for target in targets}
    if len(arches) != 1:
        raise ConfigError("SM-CONFIG-004", f"a library needs levels of one architecture, not of {sorted(arches)}")
    for name, count in Counter(unit.name for unit in source.units).items():
        if not _UNIT_NAME.fullmatch(name) or count > 1:
            raise CodegenError("SM-CODEGEN-002", f"{name!r} is not an identifier or is used twice")
    return arches.pop()


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
        self, order: _Order, source: Source, compiler: Compiler, cache: Cache, config: Config, step: Step,
        early: EarlyObjects | None,
    ) -> None:  # fmt: skip
        self.order = order
        self.source = source
        self.compiler = compiler
        self.cache = cache
        self.config = config
        self.step = step
        self.early = early
        self.commands = Commands(compiler, cache, config)
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
        workers = self.config.jobs or usable_cpus().count
        with ThreadPoolExecutor(max(1, workers)) as pool:
            try:  # around the first submission too: leaving the pool waits for what it began
                futures = {job.stem: pool.submit(self._object_or_stop, job, folder) for job in self._in_sequence()}
                wait(futures.values())
            except BaseException:
                self.commands.processes.stop()
                if self.early is not None:  # a thread may wait for it
                    self.early.close()
                raise
        # Later ones only failed because the first one stopped them.
        if self.failures:
            raise self.failures[0]
        return [futures[job.stem].result() for job in self.order.jobs]

    def _in_sequence(self) -> list[Job]:
        """The longest ones first; last of all the one that is being compiled already, for which a thread would wait."""
        jobs = longest_first(self.order.jobs)
        under_way = self.early.hand_over() if self.early is not None else None
        return sorted(jobs, key=lambda job: job.key == under_way)

    def _object_or_stop(self, job: Job, folder: Path) -> Path:
        try:
            return self._object(job, folder)
        except BaseException as error:
            self.failures.append(error)
            self.commands.processes.stop()
            raise

    def _object(self, job: Job, folder: Path) -> Path:
        if self.early is not None:
            self.early.wait(job.key)
        cached = job.prebuilt.path if job.prebuilt is not None else self.cache.find_object(job.key)
        place = folder / f"{job.stem}.o"
        if cached is None or not take(cached, place):
            self.commands.compile(job, self.source.include_dirs, folder / job.stem, place)
        self.step(job.label)
        return place

    def _link(self, folder: Path, objects: list[Path]) -> Path:
        names = [path.name for path in objects]
        base = (*self.compiler.argv, *self.order.link, *names, "-o", "linked")
        helpers = self._helper_library(folder)
        self.commands.run((*base, *helpers), folder, "link", output="linked")
        output = folder / "linked"
        if self.order.program:
            return output
        symbols = _symbols(output)
        # zig has no archive to name. Its run-time library brings a slow memcpy, so it is linked only when needed, and
        # debug information with absolute paths, so it is stripped.
        if self.compiler.kind == "zig" and _needs_helpers(symbols):
            self.commands.run((*base, "-rtlib=compiler-rt", "-s"), folder, "link", output="linked")
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
        answer = self.commands.run((*self.compiler.argv, "-print-libgcc-file-name"), folder, "link")
        archive = answer.stdout.strip()
        return (archive,) if Path(archive).is_file() else ()


def _symbols(library: Path) -> Symbols:
    try:
        return read_symbols(library)
    except ValueError as error:
        raise ToolchainError("SM-TOOL-006", f"what was linked is not a library: {error}") from error


def _needs_helpers(symbols: Symbols) -> bool:
    return any(name.startswith("__") and name not in _LIBC_INTERNAL for name in symbols.needed)
