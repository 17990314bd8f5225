"""The machine record: caches, processors, and what the CPU can do.

Input: sysfs, the scheduler's affinity, /proc/cpuinfo. Output: `Machine`. Invariant: what cannot be read has the value
of `REFERENCE`, the machine that code is generated for: artifacts run everywhere, and learn their own machine when they
are loaded (`machine.h`). Results never depend on it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from smelt.base.cpus import find_cpus
from smelt.base.errors import ConfigError
from smelt.base.features import features_of, find_feature
from smelt.base.target import host_features

_ROOT: Final = Path("/")
_UNITS: Final = {"K": 1 << 10, "M": 1 << 20}


@dataclass(frozen=True)
class Machine:
    """Bytes of the caches of one core, or that cores share; CPUs that may be used; threads that work is cut for;
    CPU features by name."""

    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20
    l3_bytes: int = 32 << 20
    processors: int = 2
    threads: int = 2
    features: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for name in self.features:
            find_feature(name)

    def with_(self, **changes: int) -> Machine:
        """The same with other numbers, as `SMELT_MACHINE` replaces them."""
        known = [field.name for field in fields(self)]
        unknown = sorted(changes.keys() - set(known))
        if unknown:
            listed = ", ".join(known)
            raise ConfigError("SM-CONFIG-001", f"a machine has no {unknown[0]!r}", hint=f"It has {listed}.")
        changed: dict[str, Any] = dict(changes)
        return replace(self, **changed)


REFERENCE: Final = Machine()


def find_machine(root: Path = _ROOT) -> Machine:
    """`root` is where /proc and /sys lie."""
    count = find_cpus(root).count
    caches = {f"l{level}_bytes": size for level, size in _caches(root).items() if level <= 3}
    return replace(REFERENCE.with_(**caches), processors=count, threads=count, features=features_of(host_features()))


def _caches(root: Path) -> dict[int, int]:
    """Bytes by level, of what the first CPU sees; those of instructions left out."""
    sizes: dict[int, int] = {}
    for folder in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        with suppress(OSError, ValueError):
            if (folder / "type").read_text(encoding="ascii").strip() != "Instruction":
                level = int((folder / "level").read_text(encoding="ascii"))
                sizes[level] = _bytes((folder / "size").read_text(encoding="ascii").strip())
    return sizes


def _bytes(text: str) -> int:
    return int(text[:-1]) * _UNITS[text[-1]] if text[-1] in _UNITS else int(text)
