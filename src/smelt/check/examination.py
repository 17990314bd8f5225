"""Verify and time the regions of a compiled model, each in place.

Input: the prepared model, the code of its regions and their library. Output: `Findings`. Invariant: the model and its
kernels run only in a process with limits; whatever that process does, each region ends verified or rejected with a
reason.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import onnx_ir as ir

from smelt.base.config import Config
from smelt.base.progress import Progress, Step
from smelt.base.target import find_target, runs_on_host
from smelt.check.bundle import Bundle
from smelt.check.findings import Examination, Fault, Findings, Verdict
from smelt.check.op_types import op_types_of
from smelt.check.remembered import findings_key, recall, remember
from smelt.check.tune import tune
from smelt.check.variants import Alone, Variants
from smelt.check.verify import write_feeds
from smelt.check.watch import Limits, Ran, run_worker
from smelt.check.weights_digest import WeightsDigest
from smelt.codegen import Generated
from smelt.ir.records import Library
from smelt.ir.walk import model_nodes
from smelt.toolchain import Cache

_VERIFY_THREADS: Final = 2  # enough to see what goes wrong in parallel


def examine(
    model: ir.Model, generated: Generated, library: Library, wanted: Examination, config: Config, progress: Progress,
    weights: WeightsDigest | None = None,
) -> Findings:  # fmt: skip
    """The findings for every region of the model as it was partitioned. `weights` may be under way already."""
    cache = Cache(config.cache_dir)
    key = findings_key(model, generated.regions, library, wanted, weights or WeightsDigest(model))
    known = recall(cache, key) if wanted.keep_calls is None else None
    if known is not None:
        return known
    findings = _examine(model, generated, library, wanted, config, progress, cache)
    remember(cache, key, findings)
    return findings


def _examine(
    model: ir.Model, generated: Generated, library: Library, wanted: Examination, config: Config, progress: Progress,
    cache: Cache,
) -> Findings:  # fmt: skip
    variants = Variants(model, generated)
    findings = Findings()
    with cache.work() as folder:
        if wanted.verify:
            step = progress.task("verify", len(generated.regions) + 1)
            findings = _Verification(variants, library, wanted, config, folder, step).run()
        if wanted.tune and not findings.rejected:
            findings = findings.merge(tune(variants, library, wanted, config, folder, progress))
    return findings


def host_levels(library: Library) -> list[str]:
    """The library's CPU levels that run on this machine, the best first."""
    targets = [find_target(name) for name in library.targets]
    return [target.name for target in reversed(targets) if runs_on_host(target)]


@dataclass
class _State:
    """What is known so far; grows from one run of the worker to the next."""

    verdicts: dict[int | None, Verdict] = field(default_factory=dict[int | None, Verdict])
    rejected: dict[int, str] = field(default_factory=dict[int, str])
    faults: dict[int, Fault] = field(default_factory=dict[int, Fault])
    notes: list[str] = field(default_factory=list[str])
    attempt: int = 0
    finished: bool = False

    def reject(self, indices: Iterable[int], reason: str) -> None:
        for index in indices:
            self.rejected.setdefault(index, reason)
            known = self.verdicts.get(index)
            if known is None or not known.rejected:
                self.verdicts[index] = Verdict(index, rejected=reason)


class _Verification:
    def __init__(
        self, variants: Variants, library: Library, wanted: Examination, config: Config, folder: Path, step: Step
    ) -> None:
        self.variants = variants
        self.library = library
        self.wanted = wanted
        self.config = config
        self.folder = folder
        self.step = step
        self.indices = [region.index for region in variants.generated.regions]
        self.state = _State()

    def run(self) -> Findings:
        job = self._job()
        deadline = time.monotonic() + self.config.verify_timeout_s
        while not self.state.finished:
            left = deadline - time.monotonic()
            if left <= 0:
                self.state.reject(self._open(), f"verification did not end within {self.config.verify_timeout_s:g} s")
                break
            limits = Limits(left, self.config.verify_timeout_s / 5, self.config.verify_memory_bytes)
            job |= {"done": sorted(self._done()), "rejected": bool(self.state.rejected), "attempt": self.state.attempt}
            self._learn(run_worker(job, self.folder, limits))
        state = self.state
        return Findings(tuple(state.verdicts.values()), dict(state.rejected), tuple(state.notes), dict(state.faults))

    def _done(self) -> set[int]:
        return {index for index in self.state.verdicts if index is not None} | set(self.wanted.known)

    def _open(self) -> list[int]:
        done = self._done()
        return [index for index in self.indices if index not in done]

    # what one run of the worker tells

    def _learn(self, ran: Ran) -> None:
        state = self.state
        for event in ran.events:
            if "verdict" in event:
                self._take(_read_verdict(event["verdict"]))
            elif "model" in event:
                self._take_model(_read_verdict(event["model"]))
            elif "failed" in event:
                self._give_up(str(event["failed"]))
        if ran.failure and not state.finished:
            self._blame(ran)
        elif not ran.failure:
            state.finished = True

    def _take(self, verdict: Verdict) -> None:
        assert verdict.region is not None
        self.step(f"region {verdict.region}")
        self.state.verdicts[verdict.region] = verdict
        if verdict.rejected:
            self.state.rejected[verdict.region] = f"verification failed: {verdict.rejected}"
            self.state.faults[verdict.region] = "wrong"

    def _take_model(self, verdict: Verdict) -> None:
        """A wrong whole with right parts: nothing tells which part, unless some could not be watched."""
        self.state.finished = True
        self.step("model")
        self.state.verdicts[None] = verdict
        if verdict.rejected and not self.state.rejected:
            self._reject_unwatched_or_all(f"the whole model gave a wrong result: {verdict.rejected}")

    def _reject_unwatched_or_all(self, reason: str) -> None:
        nested = self.variants.nested()
        self.state.reject(nested or self.indices, reason)
        what = "the regions inside control flow were" if nested else "all regions were"
        self.state.notes.append(f"VERIFICATION FAILED, {what} given back to ONNX Runtime: {reason}.")

    def _blame(self, ran: Ran) -> None:
        """The process did not survive a step: what that step ran is to blame."""
        step, state = ran.last_step, self.state
        if step["at"] == "region":
            state.reject([int(step["index"])], f"its kernel {ran.failure} in verification")
            state.faults[int(step["index"])] = "wrong"
        elif step["at"] == "observe" and not self.wanted.feeds:
            state.attempt = int(step["attempt"]) + 1
        elif step["at"] == "model":
            state.finished = True
            if not state.rejected:
                self._reject_unwatched_or_all(f"the whole model {ran.failure}")
        else:
            state.finished = True
            who = "stock ONNX Runtime" if step["at"] == "observe" else "the verifying process"
            self._give_up(f"{who} {ran.failure}")

    def _give_up(self, reason: str) -> None:
        """No region ran: without values there is nothing to compare."""
        self.state.finished = True
        if self.wanted.keep_unverified and not self.wanted.feeds:
            self.state.notes.append(f"Nothing could be verified: {reason}. The regions were kept, as was asked for.")
            return
        self.state.reject(self.indices, f"not verified: {reason}")
        self.state.notes.append(f"Nothing could be verified, so nothing was replaced: {reason}.")

    # the job

    def _job(self) -> dict[str, Any]:
        graph = self.variants.model.graph
        inputs = [v.name for v in graph.inputs if v.name not in graph.initializers]
        if self.wanted.feeds:
            write_feeds(self.folder / "feeds.npz", self.wanted.feeds)
        if self.wanted.keep_calls is not None:
            self.wanted.keep_calls.mkdir(parents=True, exist_ok=True)
        return {
            "mode": "verify",
            "size": "small",
            "threads": min(self.wanted.threads or _VERIFY_THREADS, _VERIFY_THREADS),
            "library": str(self.library.path),
            # What is compiled for a call of this process runs at the best level alone.
            "levels": host_levels(self.library)[: 1 if self.wanted.recorded else None],
            "feeds": "feeds.npz" if self.wanted.feeds else None,
            "inputs": inputs,
            "outputs": [v.name for v in graph.outputs],
            "op_types": op_types_of(model_nodes(self.variants.model)),
            "calls": None if self.wanted.keep_calls is None else str(self.wanted.keep_calls.absolute()),
            "nested": bool(self.variants.nested()),
            **self._write_models(),
        }

    def _write_models(self) -> dict[str, Any]:
        bundle = Bundle(self.folder)
        try:
            fast, _ = self.variants.rewritten()
            bundle.add(fast, "fast.onnx")
            bundle.add(self.variants.model, "stock.onnx")
            alone = self.variants.alone()
            watched = [v for region in alone for v in (*region.inputs, *region.plain_inputs, *region.outputs)]
            produced = [v for v in dict.fromkeys(watched) if not v.is_graph_input()]
            bundle.add(self.variants.model, "watched.onnx", produced)
            seen: set[str] = set()
            regions = [_region_job(region, bundle, seen) for region in alone]
            declared = {v.name or "": _dims(v) for v in (*produced, *self.variants.model.graph.outputs) if v.shape}
            return {"regions": regions, "declared": declared}
        finally:
            bundle.close()


def _dims(value: ir.Value) -> list[int | None]:
    return [dim if isinstance(dim, int) else None for dim in value.shape or ()]


def _region_job(region: Alone, bundle: Bundle, seen: set[str]) -> dict[str, Any]:
    twin = region.entry in seen
    seen.add(region.entry)
    return {
        "index": region.index,
        "entry": region.entry,
        "twin": twin,
        "custom": bundle.add(region.custom, f"custom{region.index}.onnx").name,
        "plain": bundle.add(region.plain, f"plain{region.index}.onnx").name,
        "inputs": [v.name for v in region.inputs],
        "plain_inputs": [v.name for v in region.plain_inputs],
        "outputs": [v.name for v in region.outputs],
        "op_types": list(region.op_types),
    }


def _read_verdict(event: dict[str, Any]) -> Verdict:
    return Verdict(
        event["region"], event["error"], event["stock_error"], event["tolerance"], rejected=event["rejected"],
        levels=tuple(event["levels"]), note=event["note"], failing=tuple(event["failing"]),
    )  # fmt: skip
