"""Which regions pay, by timing them in place.

Input: the variants of a model and its library. Output: `Findings` with times, and the regions that lose as rejected.
Invariant: a region is judged by the whole model with and without it, ONNX Runtime's optimizer on in both, so that
what ONNX Runtime would fuse across the region's border counts; the whole model is judged last, against stock.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from smelt.base.config import Config
from smelt.base.progress import Progress
from smelt.check.bundle import Bundle
from smelt.check.feed_files import write_feeds
from smelt.check.findings import Examination, Findings, Verdict
from smelt.check.intervals import median_interval
from smelt.check.variants import Variants
from smelt.check.watch import Limits, Ran, run_worker
from smelt.ir.records import Library

_LOSS: Final = 0.02  # of a region's own time: less is noise
_MAX_ENTRIES: Final = 40  # distinct regions timed one by one, the longest first


@dataclass(frozen=True)
class _Gain:
    """What the regions of one entry save together, in microseconds of the whole model, with its 95% interval."""

    entry: str
    median: float
    low: float
    high: float


def tune(
    variants: Variants, library: Library, wanted: Examination, config: Config, folder: Path, progress: Progress
) -> Findings:
    """Time the whole model, then each distinct region; reject those that lose."""
    timer = _Timer(variants, library, wanted, config, folder)
    timer.write()
    try:
        return _tuned(timer, variants, progress)
    finally:
        timer.close()


def _tuned(timer: _Timer, variants: Variants, progress: Progress) -> Findings:
    step = progress.task("tune", len(timer.entries) + 2)
    ran = timer.run([("stock.onnx", "fast.onnx")], profile=True)
    step("model")
    problem = _problem(ran)
    if problem:
        return Findings(notes=(f"Nothing was timed: {problem}.",))
    node_us = {k: float(v) for event in ran.events if "nodes" in event for k, v in event["nodes"].items()}
    times = timer.region_times(node_us)
    gains = timer.gains(times)
    step("regions", len(timer.entries))
    rejected = {i: why for gain in gains.values() for i, why in timer.judge(gain, times).items()}
    verdicts = [*timer.verdicts(times, gains, rejected)]
    kept = [region.index for region in variants.generated.regions if region.index not in rejected]
    whole = timer.whole(ran, kept, rejected)
    if whole is not None:
        verdicts.append(whole)
        if whole.rejected:
            worst = timer.worst(kept, gains)
            reason = f"the model with it is slower than stock ONNX Runtime: {whole.rejected}"
            rejected |= dict.fromkeys(worst, reason)
    return Findings(tuple(verdicts), rejected, faults=dict.fromkeys(rejected, "slow"))


def _problem(ran: Ran) -> str:
    told = next((str(event["failed"]) for event in ran.events if "failed" in event), "")
    return told or (f"the timing process {ran.failure}" if ran.failure else "")


class _Timer:
    def __init__(self, variants: Variants, library: Library, wanted: Examination, config: Config, folder: Path) -> None:
        self.variants = variants
        self.library = library
        self.wanted = wanted
        self.config = config
        self.folder = folder
        self.entries: dict[str, list[int]] = defaultdict(list)
        generated = variants.generated
        for region, entry in zip(generated.regions, generated.entry_of, strict=True):
            self.entries[entry].append(region.index)
        self.names: dict[str, int] = {}

    # running

    def write(self) -> None:
        self._bundle = Bundle(self.folder)
        self._bundle.add(self.variants.model, "stock.onnx")
        fast, self.names = self.variants.rewritten()
        self._bundle.add(fast, "fast.onnx")
        if self.wanted.feeds:
            write_feeds(self.folder / "feeds.npz", self.wanted.feeds)

    def close(self) -> None:
        self._bundle.close()

    def add(self, name: str, keep: list[int]) -> str:
        model, _ = self.variants.rewritten(keep)
        self._bundle.add(model, name)
        return name

    def run(self, pairs: list[tuple[str, str]], *, profile: bool = False) -> Ran:
        self._bundle.flush()
        job: dict[str, Any] = {
            "mode": "time",
            "size": "real",
            "prepared": "stock.onnx",
            "attempt": 0,
            "threads": self.wanted.threads or self.config.threads,
            "library": str(self.library.path),
            "feeds": "feeds.npz" if self.wanted.feeds else None,
            "shapes": {name: list(shape) for name, shape in self.wanted.shapes.items()},
            "pairs": pairs,
            "keep": ["fast.onnx", "stock.onnx"],
            "profile": profile,
        }
        limit_s = self.config.verify_timeout_s
        return run_worker(job, self.folder, Limits(limit_s, limit_s, self.config.verify_memory_bytes))

    # regions

    def region_times(self, node_us: dict[str, float]) -> dict[int, float]:
        return {index: node_us[name] for name, index in self.names.items() if name in node_us}

    def gains(self, times: dict[int, float]) -> dict[str, _Gain]:
        """For each distinct region: how much longer the model takes when ONNX Runtime gets its nodes back."""
        if len(self.entries) == 1:
            return {}
        total = {entry: sum(times.get(i, 0.0) for i in indices) for entry, indices in self.entries.items()}
        chosen = sorted(total, key=lambda entry: -total[entry])[:_MAX_ENTRIES]
        pairs: list[tuple[str, str]] = []
        for entry in chosen:
            keep = [i for other, indices in self.entries.items() if other != entry for i in indices]
            pairs.append((self.add(f"without_{entry}.onnx", keep), "fast.onnx"))
        ran = self.run(pairs)
        by_name = {event["pair"][0]: event["rounds"] for event in ran.events if "pair" in event}
        gains: dict[str, _Gain] = {}
        for entry, (name, _) in zip(chosen, pairs, strict=True):
            if name in by_name:
                gains[entry] = _Gain(entry, *median_interval([without - full for without, full in by_name[name]]))
        return gains

    def judge(self, gain: _Gain, times: dict[int, float]) -> dict[int, str]:
        """Rejections of the regions of one entry."""
        indices = self.entries[gain.entry]
        own = sum(times.get(i, 0.0) for i in indices)
        if gain.high >= 0 or -gain.median <= _LOSS * own:
            return {}
        ours, stock = _each(own, indices), _each(own + gain.median, indices)
        return dict.fromkeys(indices, f"slower than the nodes that it replaces: {ours} against {stock}")

    def verdicts(self, times: dict[int, float], gains: dict[str, _Gain], rejected: dict[int, str]) -> list[Verdict]:
        out: list[Verdict] = []
        for entry, indices in self.entries.items():
            gain = gains.get(entry)
            for index in indices:
                own = times.get(index)
                stock = None if own is None or gain is None else max(0.0, own + gain.median / len(indices))
                out.append(Verdict(index, time_us=own, stock_time_us=stock, rejected=rejected.get(index, "")))
        return out

    # the whole

    def whole(self, first: Ran, kept: list[int], rejected: dict[int, str]) -> Verdict | None:
        """The model as it will be, against stock. The first run has told when nothing was rejected."""
        ran, name = first, "fast.onnx"
        if rejected and kept:
            name = self.add("kept.onnx", kept)
            ran = self.run([("stock.onnx", name)])
        elif rejected:
            return None
        rounds = next((event["rounds"] for event in ran.events if event.get("pair") == ["stock.onnx", name]), None)
        if rounds is None:
            return None
        ratio, low, high = median_interval([stock / ours for stock, ours in rounds])
        ours, stock = (median_interval([pair[side] for pair in rounds])[0] for side in (1, 0))
        slower = ratio < 1 - _LOSS and high < 1
        reason = f"{ours:.0f} us against {stock:.0f} us ({ratio:.3f} times as fast)" if slower else ""
        return Verdict(None, time_us=ours, stock_time_us=stock, ratio=(low, high), rejected=reason)

    def worst(self, kept: list[int], gains: dict[str, _Gain]) -> list[int]:
        """The regions that help least; all when nothing tells them apart."""
        known = [g for g in gains.values() if set(self.entries[g.entry]) & set(kept)]
        if not known:
            return kept
        return self.entries[min(known, key=lambda gain: gain.median).entry]


def _each(total_us: float, indices: list[int]) -> str:
    return f"{max(0.0, total_us) / len(indices):.1f} us"
