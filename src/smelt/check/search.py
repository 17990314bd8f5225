"""Sizes for this machine: the settings of code generation, by timing the model with each.

Input: a model, the source of its kernels, a way to build a library, a time budget. Output: the settings that are faster
than the defaults, and what was measured. Invariant: one setting is changed at a time, and stays changed only when the
whole model is faster beyond the noise; the choice is remembered under the kernels and the machine.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import onnx_ir as ir

from smelt.base.config import Config
from smelt.base.errors import SmeltError
from smelt.base.progress import Progress
from smelt.base.target import host_features
from smelt.check.bundle import Bundle
from smelt.check.findings import Choice, Examination, Trial
from smelt.check.timing import median_interval
from smelt.check.variants import Variants
from smelt.check.verify import write_feeds
from smelt.check.watch import Limits, run_worker
from smelt.codegen import Generated, Setting, settings_of, with_settings
from smelt.ir.records import Library, Source
from smelt.toolchain import Cache, hash_headers

_GAIN: Final = 1.01  # less is noise
_FORMAT: Final = 1
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
        known = settings_of(self.source)
        step = progress.task("tune sizes", len(known))
        until = time.monotonic() + self.wanted.tune_seconds
        for setting in known:
            if time.monotonic() >= until:
                return Choice(self.chosen, tuple(self.trials), complete=False)
            self._try(setting)
            step(setting.name)
        return Choice(self.chosen, tuple(self.trials))

    def _try(self, setting: Setting) -> None:
        """The model with each other value against the model as chosen so far."""
        values = [value for value in (setting.default, *setting.others) if value != self._now(setting)]
        try:
            base, *others = (self.build(with_settings(self.source, one)) for one in self._candidates(setting, values))
        except SmeltError:
            return  # what does not compile is no choice
        trials: list[Trial] = []
        for value, rounds in zip(values, self._timed(base, others), strict=False):
            ratio, low, _ = median_interval([before / after for before, after in rounds])
            trials.append(Trial(setting.name, value, ratio, low, kept=False))
        best = max(trials, key=lambda t: t.ratio, default=None)
        if best is not None and best.ratio > _GAIN and best.low > 1:
            self.chosen = {**self.chosen, setting.name: best.value}
        self.trials += [replace(t, kept=self.chosen.get(setting.name) == t.value) for t in trials]

    def _now(self, setting: Setting) -> int:
        return self.chosen.get(setting.name, setting.default)

    def _candidates(self, setting: Setting, values: list[int]) -> list[dict[str, int]]:
        return [self.chosen, *({**self.chosen, setting.name: value} for value in values)]

    def _timed(self, base: Library, others: list[Library]) -> list[list[list[float]]]:
        """Rounds of (base, other) for each of the others, as far as they ran."""
        labels = {f"fast.onnx@{place}": str(library.path) for place, library in enumerate(others)}
        job: dict[str, Any] = {
            "mode": "time", "size": "real", "attempt": 0, "threads": self.wanted.threads or self.config.threads,
            "library": str(base.path), "libraries": labels, "feeds": "feeds.npz" if self.wanted.feeds else None,
            "pairs": [("fast.onnx", label) for label in labels], "keep": ["fast.onnx"], "profile": False,
        }  # fmt: skip
        limit_s = self.config.verify_timeout_s
        ran = run_worker(job, self.folder, Limits(limit_s, limit_s, self.config.verify_memory_bytes))
        return [event["rounds"] for event in ran.events if "pair" in event]


# remembering


def _key(source: Source, wanted: Examination, config: Config) -> str:
    """Kernels, headers and machine; sizes of the inputs given, not their contents."""
    feeds = {name: [str(a.dtype), list(a.shape)] for name, a in (wanted.feeds or {}).items()}
    threads = wanted.threads or config.threads
    facts = ["settings", _FORMAT, version("onnxruntime"), sorted(host_features()), threads, feeds]
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
