"""An artifact that is no faster than stock ONNX Runtime is not handed out.

Input: the prepared model with its verified regions, the model as it was given, and the seconds that may be spent on
the first question, whether the artifact is faster; only one that seems not to be costs more.
Output: `Findings`: what was measured, and the regions that fall back to ONNX Runtime. Invariant: regions fall back only
where the whole artifact, twice, in two processes, is slower than stock at one of the numbers of threads and sizes (by
its paired 95% interval, or by its median where rounds enough left the interval undecided) or gains nothing in all of
them. Then those regions fall back without which the model is faster by the interval, if the rest gains; else all do,
and the artifact is stock's own model.
"""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from smelt.base.config import Config
from smelt.base.progress import Progress
from smelt.check.bundle import Bundle
from smelt.check.findings import Examination, Findings, Timed
from smelt.check.intervals import median_interval
from smelt.check.race import DOUBT, FEWEST_ROUNDS
from smelt.check.race_ahead import RaceAhead, race_job, race_limits, thread_counts
from smelt.check.remembered import findings_key, recall, remember
from smelt.check.variants import Variants
from smelt.check.watch import Ran, run_worker
from smelt.check.weights_digest import WeightsDigest
from smelt.ir.backend import Generated
from smelt.ir.records import Library
from smelt.toolchain import Cache

LOSS: Final = 0.02  # a smaller loss is none: code placement alone moves a loop by as much
MOST_SECONDS: Final = 3.0
_LEAST_SECONDS: Final = 1.0
_SURE: Final = 0.05  # width of an interval below which ratios count alike
_UNSURE: Final = 0.2  # with too few rounds for an interval, whatever it says
_SHARE: Final = 0.25  # of the time that the compilation has taken so far
_MOST_ENTRIES: Final = 12  # distinct regions timed one by one, those with the most nodes first


def seconds_for(compiled_s: float) -> float:
    """How long one question may take after a compilation of so many seconds, processes and sessions included."""
    return max(_LEAST_SECONDS, min(MOST_SECONDS, _SHARE * compiled_s))


def guard_speed(
    model: ir.Model, generated: Generated, library: Library, wanted: Examination, config: Config, progress: Progress,
    weights: WeightsDigest, ahead: RaceAhead, seconds: float,
) -> Findings:  # fmt: skip
    """Time the artifact against stock, in the process that has begun, if any."""
    cache = Cache(config.cache_dir)
    key = findings_key(generated.regions, library, wanted, weights)
    key = hashlib.sha256(f"timed {key}".encode()).hexdigest()
    known = recall(cache, key)
    if known is not None:
        return known
    with cache.work() if ahead.folder is None else nullcontext(ahead.folder) as folder:
        step = progress.task("time", 1)
        guard = _Guard(Variants(model, generated), library, wanted, config, folder, ahead, seconds)
        try:
            found = guard.run()
        finally:
            guard.close()
        step("model")
    remember(cache, key, found)
    return found


class _Guard:
    def __init__(
        self, variants: Variants, library: Library, wanted: Examination, config: Config, folder: Path,
        ahead: RaceAhead, seconds: float,
    ) -> None:  # fmt: skip
        self.variants, self.library, self.wanted, self.config = variants, library, wanted, config
        self.folder, self.seconds, self.ahead = folder, seconds, ahead
        self.began = time.time()
        self.bundle = Bundle(folder)
        self.stock = ahead.stock or folder / "stock.onnx"  # the prepared model stands for one that is no file
        if ahead.stock is None:
            self.bundle.add(variants.model, "stock.onnx")
        self.entries: dict[str, list[int]] = defaultdict(list)
        for region, entry in zip(variants.generated.regions, variants.generated.entry_of, strict=True):
            self.entries[entry].append(region.index)

    def close(self) -> None:
        self.bundle.close()

    def run(self) -> Findings:
        every = [index for indices in self.entries.values() for index in indices]
        self._write("fast.onnx", every)
        first = self._against_stock("fast.onnx", began=self.began)
        if isinstance(first, str):
            return Findings(notes=(f"Not timed against stock ONNX Runtime: {first}.",))
        slow = [one for one in first if seems_slower(one)]
        if not slow and gains(first):
            return Findings(timed=first)
        again = self._against_stock("fast.onnx", slow)
        if isinstance(again, str):
            return Findings(timed=first)
        slow = [one for one in again if seems_slower(one)]
        measured = _replaced(first, again)
        if not slow and gains(measured):
            return Findings(timed=measured)
        return self._without_losers(measured, slow, every)

    def _without_losers(self, measured: Sequence[Timed], slow: Sequence[Timed], every: Sequence[int]) -> Findings:
        losers = self._losers(slow)
        kept = [index for index in every if index not in losers]
        if losers and kept:
            self._write("kept.onnx", kept)
            final = self._against_stock("kept.onnx")
            if not isinstance(final, str) and not any(seems_slower(one) for one in final) and gains(final):
                return Findings(timed=final, rejected=dict.fromkeys(losers, _reason(measured, "this region of it")))
        return Findings(timed=tuple(measured), rejected=dict.fromkeys(every, _reason(measured, "all regions of it")))

    def _losers(self, slow: Sequence[Timed]) -> list[int]:
        """Regions without which the model is faster, by pairs of the model without them and with all, where it is slow;
        at the usual sizes where it is slow at none."""
        if len(self.entries) == 1:
            return []
        sizes = {region.index: len(region.nodes) for region in self.variants.generated.regions}
        total = {entry: sum(sizes[i] for i in indices) for entry, indices in self.entries.items()}
        chosen = sorted(total, key=lambda entry: -total[entry])[:_MOST_ENTRIES]
        names: dict[str, str] = {}
        for place, entry in enumerate(chosen):
            others = [i for other, indices in self.entries.items() if other != entry for i in indices]
            names[self._write(f"without{place}.onnx", others)] = entry
        where = [(one.threads, one.sizes) for one in slow]
        where = where or [(threads, "") for threads in thread_counts(self.wanted, self.config)]
        ran = self._race([(name, "fast.onnx") for name in names], where)
        losing = {names[event["raced"][0]] for event in ran.events if "raced" in event and is_slower(_timed(event))}
        return sorted(index for entry in losing for index in self.entries[entry])

    def _against_stock(
        self, name: str, slow: Sequence[Timed] = (), began: float | None = None
    ) -> tuple[Timed, ...] | str:  # fmt: skip
        """Stock and a file of the folder, at every number of threads and size, or where it was slow; a text where that
        cannot be had."""
        ran = self._race([("stock", name)], [(one.threads, one.sizes) for one in slow], began)
        told = next((str(event["failed"]) for event in ran.events if "failed" in event), "")
        refused = ran.last_step["at"] == "size"  # stock ONNX Runtime died of other sizes than the usual
        problem = told or (f"the timing process {ran.failure}" if ran.failure and not refused else "")
        timed = (_timed(event) for event in ran.events if "raced" in event)
        return problem or tuple(sorted(timed, key=lambda one: one.threads))

    def _race(
        self, pairs: Sequence[tuple[str, str]], where: Sequence[tuple[int, str]] = (), began: float | None = None
    ) -> Ran:
        """`where`: threads and sizes; all of them where there are none."""
        self.bundle.flush()
        asked: dict[str, Any] = {
            "pairs": pairs, "began": time.time() if began is None else began, "seconds": self.seconds,
            "library": str(self.library.path), **({"only": where} if where else {}),
        }  # fmt: skip
        limits = race_limits(self.config)
        ran = self.ahead.race(asked, limits)
        if ran is not None and not _died_of_inputs(ran):
            return ran
        threads = sorted({count for count, _ in where}) or thread_counts(self.wanted, self.config)
        job = race_job(self.variants.model, self.wanted, self.folder, self.stock, threads) | asked
        if ran is None:
            ran = run_worker(job, self.folder, limits)
        while _died_of_inputs(ran) and (attempt := int(ran.last_step["attempt"]) + 1) < len(job["recipes"]):
            ran = run_worker(job | {"attempt": attempt}, self.folder, limits)
        return ran

    def _write(self, name: str, keep: Sequence[int]) -> str:
        made, _ = self.variants.rewritten(keep)
        self.bundle.add(made, name)
        return name


def _died_of_inputs(ran: Ran) -> bool:
    """Whether the process ended while stock ONNX Runtime tried inputs, which others may not do to it."""
    return bool(ran.failure) and ran.last_step["at"] == "observe" and "attempt" in ran.last_step


def _timed(event: dict[str, Any]) -> Timed:
    rounds: list[list[float]] = event["rounds"]
    ratio, low, high = median_interval([left / right for left, right in rounds])
    left, right = (median_interval([pair[side] for pair in rounds])[0] for side in (0, 1))
    return Timed(int(event["threads"]), right, left, ratio, low, high, len(rounds), event.get("sizes", ""))


def _replaced(first: Sequence[Timed], again: Sequence[Timed]) -> tuple[Timed, ...]:
    """What was measured twice counts by its second measurement."""
    later = {(one.threads, one.sizes): one for one in again}
    return tuple(later.get((one.threads, one.sizes), one) for one in first)


def is_slower(timed: Timed) -> bool:
    """Whether the interval leaves no doubt."""
    return timed.rounds >= FEWEST_ROUNDS and timed.high < 1 and timed.ratio < 1 - LOSS


def seems_slower(timed: Timed) -> bool:
    """Whether the interval, or the median where the interval is undecided, says so: never slower comes before fast."""
    return is_slower(timed) or (timed.rounds >= FEWEST_ROUNDS and timed.ratio < 1 - DOUBT)


def gains(measured: Sequence[Timed]) -> bool:
    """Whether the artifact is worth having: 2% faster in the mean, or faster by every interval. What gains nothing can
    only lose, at sizes and on machines that were not timed."""
    return weighted_mean(measured) >= 1 + LOSS or all(one.low > 1 for one in measured)


def weighted_mean(measured: Sequence[Timed]) -> float:
    """Geometric mean of the ratios, by the inverse squares of their intervals' widths: a ratio of [0.3, 3] says nothing
    beside one of [0.97, 1.01]."""
    if not measured:
        return 1.0
    widths = [max(_SURE if one.rounds >= FEWEST_ROUNDS else _UNSURE, np.log(one.high / one.low)) for one in measured]
    logs = [np.log(one.ratio) for one in measured]
    return float(np.exp(np.average(logs, weights=[width**-2 for width in widths])))


def _reason(measured: Sequence[Timed], why: str) -> str:
    slow = [one for one in measured if seems_slower(one)]
    told = ", ".join(f"{one.ratio:.2f} times as fast on {one.threads_text}" for one in slow or measured)
    return f"{'slower' if slow else 'not faster'} than stock ONNX Runtime ({told}): {why}"
