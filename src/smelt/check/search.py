"""Sizes for this machine: the settings of code generation, by timing the model with each.

Input: a model, the source of its kernels, a way to build a library, a time budget. Output: the settings that are faster
than the defaults, and what was measured. Invariant: one setting is changed at a time, and stays changed only when the
whole model (or, for a size of single kernels, the kernel) is faster beyond the noise; the choice is remembered under
the kernels and the machine.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import onnx_ir as ir

from smelt.base.config import Config
from smelt.base.errors import SmeltError
from smelt.base.progress import Progress
from smelt.base.target import host_features
from smelt.check.bundle import Bundle
from smelt.check.feed_files import write_feeds
from smelt.check.findings import KERNELS, Choice, Examination, Trial
from smelt.check.intervals import median_interval
from smelt.check.kernel_search import Team, Ticks, judge, teams_of
from smelt.check.variants import Variants
from smelt.check.watch import Limits, Ran, run_worker
from smelt.codegen import (
    GPU_CONFIG,
    KernelSetting,
    Setting,
    config_count,
    kernel_settings_of,
    launch_counts,
    settings_of,
    with_clocks,
    with_settings,
)
from smelt.ir.backend import Generated
from smelt.ir.records import Library, Source
from smelt.runtime import CPU_PROVIDERS, ort_version
from smelt.toolchain import Cache, hash_headers

_GAIN: Final = 1.01  # less is noise
_NO_LOSS: Final = 0.995  # each kernel is faster by its own clock already: the model must not be slower
_FORMAT: Final = 2
Build = Callable[[Source], Library]


def search(
    model: ir.Model, generated: Generated, build: Build, wanted: Examination, config: Config, progress: Progress
) -> Choice:
    """What was chosen for the same kernels on this machine before, or what timing tells now."""
    cache = Cache(config.cache_dir)
    key = _key(generated.source, wanted, config)
    known = _recall(cache, key)
    if known is not None:
        return known
    with cache.work() as folder:
        choice = _Search(model, generated, build, wanted, config, folder).run(progress)
    if choice.complete:
        _remember(cache, key, choice)
    return choice


class _Search:
    """Sizes of the library first, one after the other; then those of single kernels, and what they bring together."""

    def __init__(
        self, model: ir.Model, generated: Generated, build: Build, wanted: Examination, config: Config, folder: Path
    ) -> None:
        self.source = generated.source
        self.build = build
        self.wanted = wanted
        self.config = config
        self.folder = folder
        bundle = Bundle(folder)
        bundle.add(model, "stock.onnx")
        bundle.add(Variants(model, generated).rewritten()[0], "fast.onnx")
        bundle.close()
        if wanted.feeds:
            write_feeds(folder / "feeds.npz", wanted.feeds)
        self.chosen: dict[str, int] = {}
        self.trials: list[Trial] = []

    def run(self, progress: Progress) -> Choice:
        if self.wanted.gpu:
            return self._run_gpu(progress)
        library = settings_of(self.source)
        kernels = {s: names for s, names in kernel_settings_of(self.source).items() if s.name != GPU_CONFIG}
        step = progress.task("tune sizes", len(library) + len(kernels))
        until = time.monotonic() + self.wanted.tune_seconds
        for setting in library:
            if time.monotonic() >= until:
                return Choice(self.chosen, tuple(self.trials), complete=False)
            self._try(setting)
            step(setting.name)
        before, teams = self.chosen, teams_of(self.source)
        for setting, names in kernels.items():
            if time.monotonic() >= until:
                self._keep_kernels(before)
                return Choice(self.chosen, tuple(self.trials), complete=False)
            self._try_kernels(setting, names, teams)
            step(setting.name)
        self._keep_kernels(before)
        return Choice(self.chosen, tuple(self.trials))

    def _run_gpu(self, progress: Progress) -> Choice:
        """Each kernel's configurations, one kernel after the other, by the time of the model on the GPU."""
        found = {s: names for s, names in kernel_settings_of(self.source).items() if s.name == GPU_CONFIG}
        every = [
            (s, kernel) for s, kernels in found.items() for kernel in kernels if config_count(self.source, kernel) > 1
        ]
        step = progress.task("tune kernels of the GPU", len(every))
        until = time.monotonic() + self.wanted.tune_seconds
        for setting, kernel in every:
            if time.monotonic() >= until:
                return Choice(self.chosen, tuple(self.trials), complete=False)
            count = config_count(self.source, kernel)
            self._try(Setting(setting.of(kernel), "", 0, setting.others[:count], setting.about))
            step(kernel)
        return Choice(self.chosen, tuple(self.trials))

    def _try(self, setting: Setting) -> None:
        """The model with each other value against the model as chosen so far."""
        values = [value for value in (setting.default, *setting.others) if value != self._now(setting)]
        libraries = self._built([self.chosen, *({**self.chosen, setting.name: value} for value in values)])
        if not libraries:
            return
        trials: list[Trial] = []
        for value, rounds in zip(values, self._timed(libraries[0], libraries[1:]), strict=False):
            ratio, low, _ = median_interval([before / after for before, after in rounds])
            trials.append(Trial(setting.name, value, ratio, low, kept=False))
        best = max(trials, key=lambda t: t.ratio, default=None)
        if best is not None and best.ratio > _GAIN and best.low > 1:
            self.chosen = {**self.chosen, setting.name: best.value}
        self.trials += [replace(t, kept=self.chosen.get(setting.name) == t.value) for t in trials]

    def _try_kernels(self, setting: KernelSetting, kernels: Sequence[str], teams: Sequence[Team]) -> None:
        """Each value for all kernels that feel it, timed kernel by kernel."""
        wanted = [{setting.of(kernel): value for kernel in kernels} for value in setting.others]
        libraries = self._built([self.chosen, *({**self.chosen, **one} for one in wanted)], clocks=True)
        rounds = self._clocked(libraries) if libraries else []
        if not rounds:
            return
        others = {value: [ticks[place + 1] for ticks in rounds] for place, value in enumerate(setting.others)}
        trials = judge(setting, kernels, teams, [ticks[0] for ticks in rounds], others)
        self.trials += trials
        self.chosen = {**self.chosen, **{t.name: t.value for t in trials if t.kept}}

    def _keep_kernels(self, before: dict[str, int]) -> None:
        """Sizes of kernels stay only when the model as a whole is faster with all of them."""
        count = len({name.partition(".")[0] for name in self.chosen if name not in before})
        libraries = self._built([before, self.chosen]) if count else []
        rounds = self._timed(libraries[0], libraries[1:]) if libraries else []
        ratio, low, _ = median_interval([old / new for old, new in rounds[0]]) if rounds else (0.0, 0.0, 0.0)
        kept = ratio > 1 and low > _NO_LOSS
        if count:
            self.trials.append(Trial(KERNELS, count, ratio, low, kept))
        if not kept:
            self.chosen = before
            self.trials = [replace(t, kept=t.kept and "." not in t.name) for t in self.trials]

    def _now(self, setting: Setting) -> int:
        return self.chosen.get(setting.name, setting.default)

    def _built(self, candidates: Sequence[dict[str, int]], *, clocks: bool = False) -> list[Library]:
        """A library of each; none when one does not compile, which is no choice."""
        sources = [with_settings(self.source, one) for one in candidates]
        try:
            return [self.build(with_clocks(source) if clocks else source) for source in sources]
        except SmeltError:
            return []

    def _timed(self, base: Library, others: list[Library]) -> list[list[list[float]]]:
        """Rounds of (base, other) for each of the others, as far as they ran."""
        labels = _labels(others)
        ran = self._worker(base, labels, {"pairs": [("fast.onnx", label) for label in labels]})
        return [event["rounds"] for event in ran.events if "pair" in event]

    def _clocked(self, libraries: list[Library]) -> list[list[Ticks]]:
        """Rounds of the ticks in each library."""
        base, *others = libraries
        labels = _labels(others)
        every = ["fast.onnx", *labels]
        asked = {"clocked": every, "levels": list(base.targets), "launches": launch_counts(self.source)}
        ran = self._worker(base, labels, asked)
        return [[event["ticks"][label] for label in every] for event in ran.events if "ticks" in event]

    def _worker(self, base: Library, labels: dict[str, str], asked: dict[str, Any]) -> Ran:
        job: dict[str, Any] = {
            "mode": "time", "size": "real", "prepared": "stock.onnx",
            "attempt": 0, "threads": self.wanted.threads or self.config.threads,
            "shapes": {name: list(shape) for name, shape in self.wanted.shapes.items()},
            "library": str(base.path), "libraries": labels, "feeds": "feeds.npz" if self.wanted.feeds else None,
            "pairs": [], "keep": ["fast.onnx"], "profile": False, **asked,
            "providers": [self.wanted.gpu, *CPU_PROVIDERS] if self.wanted.gpu else None,
        }  # fmt: skip
        limit_s = self.config.verify_timeout_s
        return run_worker(job, self.folder, Limits(limit_s, limit_s, self.config.verify_memory_bytes))


def _labels(libraries: Sequence[Library]) -> dict[str, str]:
    return {f"fast.onnx@{place}": str(library.path) for place, library in enumerate(libraries)}


# remembering


def _key(source: Source, wanted: Examination, config: Config) -> str:
    """Kernels, headers and machine; sizes of the inputs given, not their contents."""
    feeds = {name: [str(a.dtype), list(a.shape)] for name, a in (wanted.feeds or {}).items()}
    threads = wanted.threads or config.threads
    facts = ["settings", _FORMAT, wanted.gpu, ort_version(), sorted(host_features()), threads, feeds]
    digest = hashlib.sha256(json.dumps([facts, hash_headers(source.include_dirs)]).encode())
    for unit in source.units:
        digest.update(f"{unit.name}\0{unit.text}\0".encode())
    return digest.hexdigest()


def _recall(cache: Cache, key: str) -> Choice | None:
    entry = cache.find(key)
    if entry is None:
        return None
    try:
        content = json.loads(entry.path.read_bytes())
        trials = tuple(Trial(**fields) for fields in content["trials"])
        return Choice({str(k): int(v) for k, v in content["settings"].items()}, trials)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remember(cache: Cache, key: str, choice: Choice) -> None:
    with cache.work() as folder:
        file = folder / "settings"
        content = {"settings": dict(choice.settings), "trials": [asdict(t) for t in choice.trials]}
        file.write_text(json.dumps(content), encoding="utf-8")
        cache.put(key, file, {"kind": "settings"}, "")
