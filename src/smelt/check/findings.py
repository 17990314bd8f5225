"""What examining a compiled model found.

Input: verdicts of verification and tuning. Output: `Findings`, `Choice`. Invariant: a region that failed either is in
`rejected` with a reason that a user can read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    import onnx_ir as ir

Fault = Literal["wrong", "slow", "unverified", "unsupported"]
INPUTS_REFUSED: Final = "the inputs given are not accepted by stock ONNX Runtime"
KERNELS: Final = "kernels"  # the trial of all sizes of single kernels together


@dataclass(frozen=True)
class Examination:
    """What to examine: correctness, speed, or both; with how many threads; on which inputs (generated when None).

    `keep_unverified` keeps what could not be run at all, for want of inputs; what fails is always rejected.
    `known` are regions that were verified in an earlier round, as the same code over the same values.
    `tune_seconds` bounds the search for sizes.
    `recorded` says that the inputs are one call of many: findings are kept for all calls of those shapes.
    `whole`: the model is run too, and not its regions alone. `gpu`: the execution provider by which configurations of a
    GPU's kernels are tuned, in the place of sizes of the CPU's.
    `keep_calls` is a folder for the inputs and expected outputs of each distinct region, for standalone programs.
    `feeds` may leave out inputs, which are generated; `more_feeds` are further calls; `shapes` are those of generated
    inputs. `original` is the model as it was given, which the whole is compared with; without it, the prepared one.
    """

    verify: bool = True
    tune: bool = False
    threads: int = 0
    tune_seconds: float = 60.0
    feeds: Mapping[str, Any] | None = None
    keep_calls: Path | None = None
    keep_unverified: bool = False
    known: tuple[int, ...] = ()
    whole: bool = True
    gpu: str = ""
    recorded: bool = False
    original: ir.Model | None = None
    more_feeds: tuple[Mapping[str, Any], ...] = ()
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, "tuple[int, ...]"])


@dataclass(frozen=True)
class Verdict:
    """One region (or, with region None, the whole model). Errors are relative to |reference| + rms(reference).

    `levels` are the CPU levels that ran; `note` says what was unusual, such as a missing reference. `ratio` is the 95%
    interval of stock time over our time, for the whole model. `failing` are the places of the outputs that were wrong,
    where it is known which. `reference` is what decided: stock, float64 or steps.
    """

    region: int | None
    error: float | None = None
    stock_error: float | None = None
    tolerance: float | None = None
    time_us: float | None = None
    stock_time_us: float | None = None
    rejected: str = ""
    levels: tuple[str, ...] = ()
    note: str = ""
    ratio: tuple[float, float] | None = None
    failing: tuple[int, ...] = ()
    reference: str = ""

    def updated(self, later: Verdict) -> Verdict:
        """What a later examination of the same region found, with what it did not look at."""
        told = {f.name: getattr(later, f.name) for f in fields(later) if getattr(later, f.name) not in (None, "", ())}
        return replace(self, **{**told, "rejected": later.rejected, "failing": later.failing})


@dataclass(frozen=True)
class Timed:
    """The artifact against stock ONNX Runtime: medians of one run, and stock's time over ours with its 95% interval.
    `sizes` tells those of the free axes, where they are not the usual ones."""

    threads: int
    time_us: float
    stock_time_us: float
    ratio: float
    low: float
    high: float
    rounds: int
    sizes: str = ""

    @property
    def threads_text(self) -> str:
        count = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{count} ({self.sizes})" if self.sizes else count

    def __str__(self) -> str:
        return f"{self.ratio:.2f} [{self.low:.2f}, {self.high:.2f}] on {self.threads_text}"


@dataclass(frozen=True)
class Findings:
    """`faults` are the rejected regions that are themselves to blame, so that a part of one may be good: those that
    gave a wrong result or crashed, those that took no inputs, and those that lost time. Others were rejected because
    nothing could tell.
    `settings` are the sizes that tuning chose, where they are not the defaults. `timed` is the artifact against stock,
    at several numbers of threads. `compared` says on which inputs the whole model was compared: the attempt of the
    generator, shapes, bindings."""

    verdicts: tuple[Verdict, ...] = ()
    rejected: Mapping[int, str] = field(default_factory=dict[int, str])
    notes: tuple[str, ...] = ()
    faults: Mapping[int, Fault] = field(default_factory=dict[int, "Fault"])
    settings: Mapping[str, int] = field(default_factory=dict[str, int])
    timed: tuple[Timed, ...] = ()
    compared: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def merge(self, later: Findings) -> Findings:
        """Earlier rejections stay; a verdict is what the last examination that looked found."""
        kept = {v.region: v for v in self.verdicts}
        for verdict in later.verdicts:
            known = kept.get(verdict.region)
            kept[verdict.region] = verdict if known is None else known.updated(verdict)
        notes = dict.fromkeys((*self.notes, *later.notes))
        rejected = {**self.rejected, **later.rejected}
        faults: dict[int, Fault] = {**self.faults, **later.faults}
        timed, compared = later.timed or self.timed, later.compared or self.compared
        return Findings(tuple(kept.values()), rejected, tuple(notes), faults, timed=timed, compared=compared)


@dataclass(frozen=True)
class Trial:
    """One setting's value: how many times as fast the model was with it, and the lower end of the 95% interval."""

    name: str
    value: int
    ratio: float
    low: float
    kept: bool


@dataclass(frozen=True)
class Choice:
    """Settings other than the defaults, and all that was tried; `complete` unless the time ran out."""

    settings: Mapping[str, int]
    trials: tuple[Trial, ...] = ()
    complete: bool = True

    def notes(self) -> tuple[str, ...]:
        """What a user should know about it."""
        library = [t for t in self.trials if t.kept and "." not in t.name]
        kept = [f"{t.name} {t.value} ({t.ratio:.2f} times as fast)" for t in library if t.name != KERNELS]
        kept += [f"{t.value} kernels cut otherwise ({t.ratio:.2f} times as fast)" for t in library if t.name == KERNELS]
        gpu = sum(t.kept and t.name.endswith(".gpu-config") and t.value > 0 for t in self.trials)
        kept += [f"{gpu} kernels of the GPU in another configuration"] if gpu else []
        tried = f"{len(self.trials)} sizes were timed" + ("" if self.complete else " before the time ran out")
        return (f"Tuned for this machine, {tried}: {', '.join(kept) if kept else 'the defaults are the fastest'}.",)
