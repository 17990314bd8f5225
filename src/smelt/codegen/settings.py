"""Sizes that decide how work is cut, and may be chosen for a machine: of all products, or of one kernel.

Input: a `Source`. Output: the same source with other sizes. Invariant: a size changes how results are computed, never
which; the default of each is what the headers say, and only units that do not depend on a model's kernels see it, so
that trying one compiles in seconds. A kernel's size goes by the kernel's name, which is a digest of its text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from smelt.ir.records import KernelInfo, Source, Unit

from .machine_sizes import machine_sizes

GEMM_UNIT: Final = "gemm"
HALF_UNIT: Final = "half_gemm"
GPU_CONFIG: Final = "gpu-config"
_ONLINE_SOFTMAX: Final = "smelt_launch_b2b_online_softmax"


@dataclass(frozen=True)
class Setting:
    """One size for the whole library: `macro` is what the header calls it, in the unit of products."""

    name: str
    macro: str
    default: int
    others: tuple[int, ...]
    about: str


@dataclass(frozen=True)
class KernelSetting:
    """One size of each kernel that one of the `launchers` runs, with the flag if there is one: a field of `smelt_cut`;
    0 is the default."""

    name: str
    field: str
    launchers: tuple[str, ...]
    others: tuple[int, ...]
    default: str
    about: str
    flag: str = ""

    def of(self, kernel: str) -> str:
        """What it is called for one kernel."""
        return f"{kernel}.{self.name}"

    def is_felt(self, kernel: KernelInfo) -> bool:
        return kernel.launcher in self.launchers and (
            not self.flag or any(self.flag in f.split(" | ") for f in kernel.flags)
        )


SETTINGS: Final = (
    Setting("product-block", "SMELT_GEMM_BLOCK", 32768, (16384, 49152, 65536),
            "bytes of B panels in one cache block"),
    Setting("product-rows", "SMELT_GEMM_ROWS", machine_sizes()["gemm_rows"], (72, 288),
            "rows of A that share one pass over the panels (MC)"),
    Setting("product-grain", "SMELT_GEMM_GRAIN", 50000, (20000, 150000), "multiply-adds that make a task"),
)  # fmt: skip
KERNEL_SETTINGS: Final = (
    KernelSetting("task-rows", "task_rows", ("smelt_launch_gemm", "smelt_launch_gemm_mlp"), (24, 48, 96, 192),
                  "by sizes", "rows of a GEMM task"),
    KernelSetting("epilogue", "epilogue", ("smelt_launch_gemm",), (1, 2), "by sizes",
                  "an epilogue of whole rows: with its GEMM (1), or after it (2)", "SMELT_MAY_PART"),
    KernelSetting("attention-rows", "attention_rows", ("smelt_launch_b2b_gemm", _ONLINE_SOFTMAX), (14, 42, 56), "28",
                  "query rows of an attention task"),
    KernelSetting("attention-span", "attention_span", (_ONLINE_SOFTMAX,), (256, 512, 1024),
                  "512 beyond 2048", "keys of one online-softmax block"),
    KernelSetting(GPU_CONFIG, "", ("smelt_device_launch",), (1, 2, 3, 4), "by cost",
                  "which configuration of a GPU's kernel is launched, counted from 1"),
    KernelSetting("loop-grain", "loop_grain", ("smelt_launch",), (5000, 30000), "12000",
                  "operations that make a task of loops"),
)  # fmt: skip


def settings_of(source: Source) -> tuple[Setting, ...]:
    """Those of the whole library that the source's kernels can feel."""
    return SETTINGS if any(unit.name == GEMM_UNIT for unit in source.units) else ()


def kernel_settings_of(source: Source) -> dict[KernelSetting, tuple[str, ...]]:
    """The kernels that can feel each."""
    every = [kernel for entry in source.entries for kernel in entry.kernels]
    felt = {s: tuple(dict.fromkeys(k.name for k in every if s.is_felt(k))) for s in KERNEL_SETTINGS}
    return {setting: kernels for setting, kernels in felt.items() if kernels}


def config_count(source: Source, kernel: str) -> int:
    """How many configurations a GPU's kernel has."""
    found = [info for entry in source.entries for info in entry.kernels if info.name == kernel]
    return len(found[0].reason.split("; ")) if found else 0


def with_settings(source: Source, chosen: Mapping[str, int]) -> Source:
    """The source with these sizes, by the settings' names; others stay as they are."""
    picked = [setting for setting in SETTINGS if chosen.get(setting.name, setting.default) != setting.default]
    configs = _configs(chosen)
    library = [f"#define {setting.macro} {int(chosen[setting.name])}\n" for setting in picked]
    kernels = _cuts(chosen)
    return replace(source, units=tuple(_with(unit, library, kernels, configs) for unit in source.units))


def unknown_settings(source: Source, chosen: Mapping[str, int]) -> tuple[str, ...]:
    """Those of the chosen sizes that nothing in the source can feel, such as those of another model's kernels."""
    known = {s.name for s in SETTINGS} | {s.of(k) for s, kernels in kernel_settings_of(source).items() for k in kernels}
    return tuple(name for name in chosen if name not in known)


def _cuts(chosen: Mapping[str, int]) -> dict[str, str]:
    """The definition of each kernel's cut, by the kernel's name."""
    fields: dict[str, list[str]] = defaultdict(list)
    by_name = {setting.name: setting for setting in KERNEL_SETTINGS}
    for name, value in sorted(chosen.items()):
        kernel, _, rest = name.partition(".")
        if rest in by_name and by_name[rest].field and value:
            fields[kernel].append(f".{by_name[rest].field} = {int(value)}")
    return {kernel: f"#define SMELT_CUT_{kernel} {{{', '.join(parts)}}}\n" for kernel, parts in fields.items()}


def _configs(chosen: Mapping[str, int]) -> dict[str, str]:
    """The definition of each GPU kernel's configuration, which its own unit sees, by the kernel's name."""
    named = [(name.partition("."), value) for name, value in sorted(chosen.items())]
    return {
        kernel: f"#define SMELT_CONFIG_{kernel} {int(value)}\n"
        for (kernel, _, rest), value in named
        if rest == GPU_CONFIG and value
    }


def _with(unit: Unit, library: list[str], kernels: Mapping[str, str], configs: Mapping[str, str]) -> Unit:
    lines = library if unit.name == GEMM_UNIT else []
    if not unit.rare:
        lines = [*lines, *(line for kernel, line in kernels.items() if kernel in unit.launches)]
    lines = [*lines, *(line for kernel, line in configs.items() if kernel in unit.kernels)]
    return replace(unit, text="".join(lines) + unit.text)
