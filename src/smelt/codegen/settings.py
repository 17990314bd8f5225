"""Sizes that decide how work is cut, and may be chosen for a machine: blocks of products, rows and size of tasks.

Input: a `Source`. Output: the same source with other sizes. Invariant: a size changes how results are computed, never
which; the default of each is what the headers say, and only units that do not depend on a model's kernels see it, so
that trying one compiles in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from smelt.ir.records import Source, Unit


@dataclass(frozen=True)
class Setting:
    """`macro` is what the header calls it, `unit` how the names of the units that read it start."""

    name: str
    macro: str
    unit: str
    default: int
    others: tuple[int, ...]
    about: str


SETTINGS: Final = (
    Setting("product-block", "SMELT_GEMM_BLOCK", "gemm", 32768, (16384, 49152, 65536),
            "bytes of panels that pass by the rows of a matrix product together"),
    Setting("product-rows", "SMELT_GEMM_ROWS", "gemm", 144, (72, 288), "rows that share one pass over the panels"),
    Setting("product-grain", "SMELT_GEMM_GRAIN", "gemm", 50000, (20000, 150000), "multiply-adds that make a task"),
    Setting("chain-rows", "SMELT_CHAIN_ROWS", "regions", 28, (14, 42), "rows of a task of attention"),
    Setting("near-panels", "SMELT_NEAR_PANELS", "regions", 262144, (65536, 1048576),
            "bytes of panels beyond which an epilogue of whole rows runs after its product"),
    Setting("loop-grain", "SMELT_GRAIN", "regions", 12000, (5000, 30000), "operations that make a task of loops"),
)  # fmt: skip


def settings_of(source: Source) -> tuple[Setting, ...]:
    """Those that the source's kernels can feel."""
    names = [unit.name for unit in source.units]
    text = "".join(unit.text for unit in source.units if unit.name.startswith("regions"))
    used = {
        "SMELT_CHAIN_ROWS": "smelt_launch_chain(",
        "SMELT_NEAR_PANELS": "SMELT_MAY_PART",
        "SMELT_GRAIN": "smelt_launch(",
    }
    return tuple(
        setting
        for setting in SETTINGS
        if any(name.startswith(setting.unit) for name in names) and used.get(setting.macro, "") in text
    )


def with_settings(source: Source, chosen: Mapping[str, int]) -> Source:
    """The source with these sizes, by the settings' names; others stay as they are."""
    picked = [setting for setting in SETTINGS if setting.name in chosen and chosen[setting.name] != setting.default]
    return replace(source, units=tuple(_with(unit, picked, chosen) for unit in source.units))


def _with(unit: Unit, picked: list[Setting], chosen: Mapping[str, int]) -> Unit:
    lines = [f"#define {s.macro} {int(chosen[s.name])}\n" for s in picked if unit.name.startswith(s.unit)]
    return replace(unit, text="".join(lines) + unit.text)
