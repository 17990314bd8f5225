"""Targets: the CPU levels that a library holds code for.

Input: names from the user and the host's CPU. Output: `Target` records. Invariant: a level's index is the number
that the C side uses in `by_level`; an architecture's levels are ordered, and the first is its baseline.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from smelt.base.errors import ConfigError


@dataclass(frozen=True)
class Target:
    """One CPU level of one architecture. `march` is spelled for gcc and clang, `mcpu` for zig."""

    name: str
    arch: str
    index: int
    vector_bytes: int
    march: str
    mcpu: str
    features: tuple[str, ...]
    extra_flags: tuple[str, ...] = ()

    @property
    def defines(self) -> tuple[str, ...]:
        """What tells the C headers which level they are compiled for."""
        return (f"-DSMELT_LEVEL={self.name}", f"-DSMELT_LEVEL_INDEX={self.index}", f"-DSMELT_VL={self.vector_bytes}")


# Feature names are those of /proc/cpuinfo.
_V2: Final = ("cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3")
_V3: Final = (*_V2, "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave")
_V4: Final = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")

TARGETS: Final[tuple[Target, ...]] = (
    # So that every machine runs it, seldom for speed: it is compiled in half the time.
    Target("v2", "x86-64", 0, 16, "x86-64-v2", "x86_64_v2", _V2, ("-O1",)),
    Target("v3", "x86-64", 1, 32, "x86-64-v3", "x86_64_v3", _V3),
    Target("v4", "x86-64", 2, 64, "x86-64-v4", "x86_64_v4", _V4, ("-mprefer-vector-width=512",)),
    Target("armv8", "aarch64", 0, 16, "armv8-a", "generic", ("asimd",)),
    Target("armv82", "aarch64", 1, 16, "armv8.2-a+fp16", "generic+v8_2a+fullfp16", ("asimd", "asimdhp", "atomics")),
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
    """The level called `name`; the compilers' spellings are understood too."""
    wanted = name.strip().lower()
    for target in TARGETS:
        if wanted in {target.name, target.march, target.mcpu}:
            return target
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


def runs_on_host(target: Target, features: frozenset[str] | None = None) -> bool:
    """Whether this machine can run the level's code; only the baseline where features are unknown."""
    if target.arch != host_arch():
        return False
    present = host_features() if features is None else features
    return target.index == 0 if not present else present.issuperset(target.features)


def host_level(features: frozenset[str] | None = None) -> Target | None:
    """The highest level that this machine runs, or None where no level fits."""
    present = host_features() if features is None else features
    able = [target for target in TARGETS if runs_on_host(target, present)]
    return able[-1] if able else None


def _known() -> str:
    return ", ".join([*dict.fromkeys(target.arch for target in TARGETS), *(target.name for target in TARGETS)])
