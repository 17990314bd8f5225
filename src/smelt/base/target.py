"""Builds: sets of CPU features that code is compiled for, and that are chosen from when a library is loaded.

Input: names from the user and the host's CPU. Output: `Target` and `Build` records. Invariant: a build runs where all
of its features are there. Features are flags, so builds are partly ordered; `BUILDS` has them in order of preference.
A `Target` is a build with regions of its own: its index is the number that the C side uses in `by_level`, the first of
an architecture is its baseline. The other builds have micro-kernels alone, in the units of a target, for features that
few kernels gain by: compiling all regions for them would cost time and space for nothing.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from smelt.base.errors import ConfigError
from smelt.base.features import flags_of, with_needed


@dataclass(frozen=True)
class Target:
    """A build that regions are compiled for. `march` is spelled for gcc and clang, `mcpu` for zig; `isa` is the feature
    that its micro-kernels are named after."""

    name: str
    arch: str
    index: int
    vector_bytes: int
    march: str
    mcpu: str
    isa: str
    extra_flags: tuple[str, ...] = ()

    @property
    def features(self) -> frozenset[str]:
        return with_needed(self.isa)

    @property
    def flags(self) -> frozenset[str]:
        """Its features as /proc/cpuinfo spells them."""
        return flags_of(self.features)

    @property
    def defines(self) -> tuple[str, ...]:
        """What tells the C headers which level they are compiled for."""
        return (f"-DSMELT_LEVEL={self.name}", f"-DSMELT_LEVEL_INDEX={self.index}", f"-DSMELT_VL={self.vector_bytes}")


@dataclass(frozen=True)
class Build:
    """Code for machines with all of the `features`: that of the target, and micro-kernels for what goes beyond it."""

    name: str
    target: Target
    features: frozenset[str]

    @property
    def flags(self) -> frozenset[str]:
        return flags_of(self.features)


TARGETS: Final[tuple[Target, ...]] = (
    # So that every machine runs it, seldom for speed: it is compiled in half the time.
    Target("v2", "x86-64", 0, 16, "x86-64-v2", "x86_64_v2", "sse4", ("-O1",)),
    Target("v3", "x86-64", 1, 32, "x86-64-v3", "x86_64_v3", "avx2"),
    Target("v4", "x86-64", 2, 64, "x86-64-v4", "x86_64_v4", "avx512", ("-mprefer-vector-width=512",)),
    Target("armv8", "aarch64", 0, 16, "armv8-a", "generic", "neon"),
    Target("armv82", "aarch64", 1, 16, "armv8.2-a+fp16", "generic+v8_2a+fullfp16", "neonfp16"),
)
_NAMED: Final = {target.name: target for target in TARGETS}


def _build(name: str, extends: str = "", *features: str) -> Build:
    target = _NAMED[extends or name]
    return Build(name, target, target.features | with_needed(*features))


# The best last: of two that are not comparable, such as AVX-VNNI and AVX-512, the later one is taken.
BUILDS: Final[tuple[Build, ...]] = (
    _build("v2"),
    _build("v3"),
    _build("avxvnni", "v3", "avxvnni"),
    _build("v4"),
    _build("avx512vnni", "v4", "avx512vnni", "avx512bf16"),
    _build("amx", "v4", "amx"),
    _build("armv8"),
    _build("armv82"),
    _build("bf16", "armv82", "bf16"),
    _build("dotprod", "armv82", "dotprod"),
    _build("i8mm", "armv82", "i8mm", "bf16"),
)

_ARCH_NAMES: Final = {
    "x86-64": "x86-64",
    "x86_64": "x86-64",
    "amd64": "x86-64",
    "aarch64": "aarch64",
    "arm64": "aarch64",
}


def host_arch() -> str:
    """This machine's architecture, in our spelling; the kernel's own name where we have no level for it."""
    machine = platform.machine().lower()
    return _ARCH_NAMES.get(machine, machine)


def levels_of(arch: str) -> tuple[Target, ...]:
    """All levels of an architecture, the baseline first."""
    spelled = _ARCH_NAMES.get(arch.lower(), arch)
    found = tuple(target for target in TARGETS if target.arch == spelled)
    if not found:
        raise ConfigError("SM-CONFIG-002", f"no code is made for {arch!r}; known are {_known()}")
    return found


def find_target(name: str) -> Target:
    """The target called `name`, or that holds the build of that name; the compilers' spellings are understood too."""
    wanted = name.strip().lower()
    for build in BUILDS:
        if wanted in {build.name, build.target.march, build.target.mcpu}:
            return build.target
    raise ConfigError("SM-CONFIG-002", f"there is no CPU level {name!r}; known are {_known()}")


def select_targets(arch: str | None = None, levels: Iterable[str] = ()) -> tuple[Target, ...]:
    """The levels to build: those named, or all of the architecture; in order, and always with the baseline.

    The baseline is never left out: a library must run on every machine of its architecture.
    """
    named = {find_target(level) for level in levels}
    arches = {target.arch for target in named} | ({levels_of(arch)[0].arch} if arch else set[str]())
    if len(arches) > 1:
        raise ConfigError("SM-CONFIG-004", f"one library cannot hold code for {' and '.join(sorted(arches))}")
    every = levels_of(arches.pop() if arches else host_arch())
    return tuple(target for target in every if not named or target in named or target.index == 0)


def host_features() -> frozenset[str]:
    """What the operating system says this CPU can do; empty where it does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in {"flags", "Features"}:
            return frozenset(value.split())
    return frozenset()


def runs_on_host(build: Target | Build, features: frozenset[str] | None = None) -> bool:
    """Whether this machine can run the build's code; only the baseline where features are unknown."""
    target = build if isinstance(build, Target) else build.target
    if target.arch != host_arch():
        return False
    present = host_features() if features is None else features
    if not present:
        return target.index == 0 and build.features == target.features
    return present.issuperset(build.flags)


def host_level(features: frozenset[str] | None = None) -> Target | None:
    """The best target that this machine runs, or None where none fits."""
    build = host_build(features)
    return None if build is None else build.target


def host_build(features: frozenset[str] | None = None, target: Target | None = None) -> Build | None:
    """The best build that this machine runs, of those that a target's units hold if one is given; None where none
    fits. `features` are words of /proc/cpuinfo."""
    present = host_features() if features is None else features
    able = [build for build in BUILDS if target in {None, build.target} and runs_on_host(build, present)]
    return able[-1] if able else None


def _known() -> str:
    return ", ".join([*dict.fromkeys(target.arch for target in TARGETS), *(build.name for build in BUILDS)])
