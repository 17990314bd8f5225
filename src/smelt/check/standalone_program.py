"""One region as a program of its own, to debug and time without ONNX Runtime.

Input: a dump with sources and calls, edited or not, and a region. Output: a program in the cache and the call file
that it runs on. Invariant: the program holds the same kernels as the library, compiled with the same flags.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from smelt.base.config import Config
from smelt.base.errors import ArtifactError
from smelt.base.target import Target, find_target
from smelt.check.dump import CALLS, read_sources
from smelt.codegen.c.backend import INCLUDE
from smelt.ir.records import Library, Source
from smelt.toolchain import Cache, build, find_compiler

_ORT_HOST: Final = "#include <smelt/ort/ort_glue.h>"
_OWN_HOST: Final = "#include <smelt/host/host.h>"


@dataclass(frozen=True)
class Standalone:
    """`command` runs the region, compares with what stock ONNX Runtime gave, and prints the time."""

    program: Path
    call_file: Path
    entry: str
    command: tuple[str, ...]


def standalone(dump: Path, region: int, config: Config) -> Standalone:
    """Build the program for a region of a dump."""
    source, levels, entries = read_sources(dump, (INCLUDE,))
    if region not in entries:
        raise ArtifactError("SM-ARTIFACT-001", f"the dump has no region {region}", hint=f"Regions: {sorted(entries)}.")
    entry = entries[region]
    call_file = (dump / CALLS / f"{entry}.call").absolute()
    if not call_file.is_file():
        raise ArtifactError(
            "SM-ARTIFACT-001",
            f"the dump has no call of region {region}",
            hint="Calls are dumped by verification: compile without --no-verify.",
        )
    program = _build(_hosted(source), _targets(levels), config, program=True)
    command = (str(program.path), str(call_file), "--region", entry)
    return Standalone(program.path, call_file, entry, command)


def rebuild(dump: Path, config: Config) -> Library:
    """The library of a dump's sources as they are now."""
    source, levels, _ = read_sources(dump, (INCLUDE,))
    return _build(source, _targets(levels), config, program=False)


def _targets(levels: tuple[str, ...]) -> tuple[Target, ...]:
    return tuple(find_target(level) for level in levels)


def _build(source: Source, targets: tuple[Target, ...], config: Config, *, program: bool) -> Library:
    compiler = find_compiler(config, targets[0].arch)
    return build(source, targets, compiler, Cache(config.cache_dir), config, program=program)


def _hosted(source: Source) -> Source:
    """The same entries behind main() instead of ONNX Runtime's custom ops."""
    units = tuple(dataclasses.replace(unit, text=unit.text.replace(_ORT_HOST, _OWN_HOST)) for unit in source.units)
    return dataclasses.replace(source, units=units)
