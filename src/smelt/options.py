"""What a user may choose for one compilation, and the clock of its stages.

Input: nothing. Output: `Options`, `Clock`. Invariant: options are checked where they are used, before anything long
begins; machine-wide knobs are in `Config`.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from smelt.base.config import Config
from smelt.base.errors import ConfigError
from smelt.base.log import logger
from smelt.base.target import Target, host_level, select_targets
from smelt.check.given_inputs import Given
from smelt.check.precision import Metric
from smelt.passes import Patterns

_log: Final = logger("pipeline")
DEVICES: Final = {"cuda": "triton-cuda", "rocm": "triton-rocm"}
PROVIDERS: Final = {"cuda": "CUDAExecutionProvider", "rocm": "ROCMExecutionProvider"}


@dataclass(frozen=True)
class Options:
    """What a user may choose for one compilation. Machine-wide knobs are in `Config`.

    `inputs` are what to verify on: a path (.npz, .npy, a folder), arrays by name, or a list of such calls; `shapes` are
    those of generated inputs. `feeds` are arrays by name that need no check; `recorded` says that they are one call of
    many, and that findings hold for all.
    `timing` lets an artifact slower than stock fall back; what is ephemeral, forced, tuned or not verified is not
    timed. `settings` are sizes that tuning chose before (the manifest has them): they are used again, nothing is timed.
    `backend` names code generators, the preferred one first, with commas; nothing stands for the configuration's.
    `device` is what the artifact's kernels run on beside the CPU: cuda or rocm. It stands for a backend, and for no
    timing, which would be that of the CPU.
    `ephemeral` is for what this process alone will run: code for other CPU levels would be built for nothing.
    `precision` "w8" or "w4" stores the weights of products in so many bits, in blocks; "int8-dynamic" computes products
    on 8-bit weights and activations; "bf16" and "fp16" store the weights of products and convolutions in that type and
    compute in float32. `accuracy` "fast" lets products with weights in blocks quantize their activations
    to 8 bits. "int8" is static: ranges of activations are those of `calibrate`, calls such as `inputs` takes. With a
    `budget` layers go back to a wider type until every output has so many dB of signal over noise, or until `metric`,
    a function of the float32 outputs and of those to judge (lists of calls, arrays by name), gives as much. `narrowed`
    says that the source is in the precision already.
    `strict` makes an error of any fault and any region without a verdict, `min_coverage` of a smaller share of nodes in
    kernels; nothing is written then, unless `keep` says so.
    """

    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    force: bool = False
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    backend: str = ""
    device: str = ""
    arch: str | None = None
    levels: tuple[str, ...] = ()
    ephemeral: bool = False
    skip_passes: tuple[str, ...] = ()
    patterns: Patterns | None = None
    preoptimize: bool = False
    precision: str = ""
    accuracy: str = "exact"
    calibrate: Given | None = None
    budget: float = 0.0
    metric: Metric | None = None
    narrowed: bool = False
    verify: bool = True
    tune: bool = False
    tune_seconds: float = 60.0
    timing: bool = True
    settings: Mapping[str, int] = field(default_factory=dict[str, int])
    threads: int = 0
    dump: Path | None = None
    feeds: Mapping[str, Any] | None = None
    inputs: Given | None = None
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict[str, "Sequence[int]"])
    recorded: bool = False
    strict: bool = False
    min_coverage: float = 0.0
    keep: bool = False


@dataclass(frozen=True)
class Stage:
    name: str
    seconds: float


class Clock:
    """Seconds by stage; `stage` is the one under way, or the last."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self.stage = ""

    @contextmanager
    def __call__(self, name: str) -> Generator[None]:
        started, self.stage = time.monotonic(), name
        try:
            yield
        finally:
            self.stages.append(Stage(name, time.monotonic() - started))
            _log.debug("%s: %.2f s", name, self.stages[-1].seconds)

    @property
    def total(self) -> float:
        return sum(stage.seconds for stage in self.stages)


def for_device(options: Options) -> Options:
    """The same options, with what the device stands for."""
    if options.device in ("", "cpu"):
        return options
    if options.device not in DEVICES:
        raise ConfigError(
            "SM-CONFIG-006", f"there is no device {options.device!r}", hint=f"Known are cpu, {', '.join(DEVICES)}."
        )
    return replace(options, backend=options.backend or DEVICES[options.device], timing=False)


def tuning_provider(device: str, config: Config) -> str:
    """The execution provider of a GPU that is here; nothing where there is none."""
    if device not in PROVIDERS:
        return ""
    from smelt.runtime import CPU_PROVIDERS, available_providers

    if device == config.device_stand_in:
        return CPU_PROVIDERS[0]
    return PROVIDERS[device] if PROVIDERS[device] in available_providers() else ""


def chosen_targets(options: Options, config: Config) -> tuple[Target, ...]:
    """All levels, those that were named, or that of this process, which may be told to use a lower one."""
    levels = options.levels or config.levels
    here = None if levels or options.arch or config.level else host_level()
    return (here,) if options.ephemeral and here is not None else select_targets(options.arch, levels)
