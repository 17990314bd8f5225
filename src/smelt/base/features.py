"""CPU features: flags that a machine has or lacks, and that a kernel may need.

Input: names from the user, and what the operating system says of its CPU. Output: `Feature` records. Invariant: a
feature is there only with those that it goes with; the C side has the same ones in the same order (`feature_list.h`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from smelt.base.errors import ConfigError


@dataclass(frozen=True)
class Feature:
    """`flags` are how /proc/cpuinfo spells it, `needs` are features that it goes with, `attribute` is what compilers
    call it in a function's target attribute; nothing where it is the `-march` of a build."""

    name: str
    arch: str
    flags: tuple[str, ...]
    needs: tuple[str, ...] = ()
    attribute: str = ""


_X86: Final = "x86-64"
_ARM: Final = "aarch64"
FEATURES: Final[tuple[Feature, ...]] = (
    Feature("sse4", _X86, ("cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3")),
    Feature("avx2", _X86, ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"), ("sse4",)),
    Feature("avxvnni", _X86, ("avx_vnni",), ("avx2",), "avxvnni"),
    Feature("avx512", _X86, ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"), ("avx2",)),
    Feature("avx512vnni", _X86, ("avx512_vnni",), ("avx512",), "avx512vnni"),
    Feature("avx512vbmi", _X86, ("avx512vbmi",), ("avx512",), "avx512vbmi"),
    Feature("avx512bf16", _X86, ("avx512_bf16",), ("avx512",), "avx512bf16"),
    Feature(
        "amx", _X86, ("amx_bf16", "amx_tile", "amx_int8"), ("avx512vnni", "avx512bf16"), "amx-tile,amx-int8,amx-bf16"
    ),
    Feature("neon", _ARM, ("asimd",)),
    Feature("neonfp16", _ARM, ("crc32", "atomics", "fphp", "asimdhp", "asimdrdm"), ("neon",)),
    Feature("dotprod", _ARM, ("asimddp",), ("neonfp16",), "+dotprod"),
    Feature("i8mm", _ARM, ("i8mm",), ("dotprod",), "+i8mm"),
    Feature("bf16", _ARM, ("bf16",), ("neonfp16",), "+bf16"),
)


def find_feature(name: str) -> Feature:
    """The feature called `name`."""
    for feature in FEATURES:
        if name == feature.name:
            return feature
    known = ", ".join(feature.name for feature in FEATURES)
    raise ConfigError("SM-CONFIG-002", f"there is no CPU feature {name!r}; known are {known}")


def with_needed(*names: str) -> frozenset[str]:
    """These features and all that they go with."""
    found = set[str]()
    for name in names:
        found |= {name, *with_needed(*find_feature(name).needs)}
    return frozenset(found)


def flags_of(names: Iterable[str]) -> frozenset[str]:
    """How /proc/cpuinfo spells these features."""
    return frozenset(flag for name in names for flag in find_feature(name).flags)


def features_of(flags: Iterable[str]) -> frozenset[str]:
    """The features that these words of /proc/cpuinfo tell, of any architecture."""
    present, found = frozenset(flags), set[str]()
    for feature in FEATURES:
        if present.issuperset(feature.flags) and found.issuperset(feature.needs):
            found.add(feature.name)
    return frozenset(found)
