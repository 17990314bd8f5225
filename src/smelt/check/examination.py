"""Verify and time the regions of a compiled model, each in place.

Input: the prepared model, the code of its regions and their library. Output: `Findings`. Invariant: the model and its
kernels run only in a process with limits; whatever that process does, each region ends verified or rejected with a
reason.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import onnx_ir as ir

from smelt.base.config import Config
from smelt.base.progress import Progress, Silent, Step
from smelt.base.target import find_target, runs_on_host
from smelt.check.axis_sizes import named_dims
from smelt.check.bundle import Bundle
from smelt.check.feed_files import write_feeds
from smelt.check.findings import Examination, Fault, Findings, Verdict
from smelt.check.inputs import every_attempt
from smelt.check.observe import BUILT, WATCHED
from smelt.check.op_types import op_types_of
from smelt.check.remembered import findings_key, recall, remember
from smelt.check.special_values import defined_outputs
from smelt.check.tune import tune
from smelt.check.variants import Alone, Variants
from smelt.check.watch import Limits, Ran, Worker, limited, run_worker
from smelt.check.watched_bodies import Keys, WatchedBodies
from smelt.check.weights_digest import WeightsDigest
from smelt.ir.backend import Generated
from smelt.ir.records import Library
from smelt.ir.walk import model_nodes
from smelt.toolchain import Cache

_VERIFY_THREADS: Final = 2  # enough to see what goes wrong in parallel


def examine(
    model: ir.Model, generated: Generated, library: Library, wanted: Examination, config: Config, progress: Progress,
    weights: WeightsDigest | None = None, begun: Begun | None = None,
) -> Findings:  # fmt: skip
    """The findings for every region of the model as it was partitioned. `weights` may be under way already, and so may
    the verification of `generated`."""
    cache = Cache(config.cache_dir)
    key = findings_key(generated.regions, library, wanted, weights or WeightsDigest(model))
    known = recall(cache, key) if wanted.keep_calls is None else None
    if known is not None:
        return known
    begun = begun or Begun(cache, config)
    with begun:
        begun.prepare(model, generated, wanted, apart=False)
        findings = begun.finish(library, progress)
    remember(cache, key, findings)
    return findings


class Begun:
    """An examination that begins while its library is built: models are written, stock ONNX Runtime runs them.

    `early` starts the examining process at once, which then loads what it needs.
    """

    def __init__(self, cache: Cache, config: Config, *, early: bool = False) -> None:
        self._config = config
        self._stack = ExitStack()
        self._folder = self._stack.enter_context(cache.work())
        self._worker = Worker(self._folder) if early else None
        if self._worker is not None:
            self._stack.callback(self._worker.close)
        self._verification: _Verification | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def __enter__(self) -> Begun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prepare(self, model: ir.Model, generated: Generated, wanted: Examination, *, apart: bool) -> None:
        """Write the models, `apart` in a thread of its own; then the process begins, if there is one. Once."""
        if self._verification is not None:
            return
        self._verification = _Verification(Variants(model, generated), wanted, self._config, self._folder)
        if not wanted.verify:
            return
        if not apart:
            self._verification.write_job(self._worker)
            return
        self._thread = threading.Thread(target=self._write_job, name="smelt-examination", daemon=True)
        self._thread.start()

    def _write_job(self) -> None:
        assert self._verification is not None
        try:
            self._verification.write_job(self._worker)
        except BaseException as error:  # raised where the result is asked for
            self._failure = error

    def finish(self, library: Library, progress: Progress) -> Findings:
        verification = self._verification
        assert verification is not None
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure
        wanted, findings = verification.wanted, Findings()
        if wanted.verify:
            step = progress.task("verify", len(verification.indices) + 1)
            findings = verification.run(library, step, self._worker)
        if wanted.tune and not wanted.gpu and not findings.rejected:
            tuned = tune(verification.variants, library, wanted, self._config, self._folder, progress)
            findings = findings.merge(tuned)
        return findings

    def close(self) -> None:
        """End the process and delete its files, as soon as nobody writes them."""
        if self._thread is not None:
            self._thread.join()
        self._stack.close()


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
    without_reference: list[int] = field(default_factory=list[int])
    suspects: list[int] = field(default_factory=list[int])
    skipped_bindings: list[int] = field(default_factory=list[int])
    observed: dict[str, Any] = field(default_factory=dict[str, Any])
    finished: bool = False

    def job(self) -> dict[str, Any]:
        """What the next run of the worker has to know."""
        names = ("attempt", "without_reference", "suspects", "skipped_bindings")
        return {"rejected": bool(self.rejected), **{name: getattr(self, name) for name in names}}

    def reject(self, indices: Iterable[int], reason: str) -> None:
        for index in indices:
            self.rejected.setdefault(index, reason)
            known = self.verdicts.get(index)
            if known is None or not known.rejected:
                self.verdicts[index] = Verdict(index, rejected=reason)


class _Verification:
    def __init__(self, variants: Variants, wanted: Examination, config: Config, folder: Path) -> None:
        self.variants = variants
        self.wanted = wanted
        self.config = config
        self.folder = folder
        self.step: Step = Silent().task("")
        self.indices = [region.index for region in variants.generated.regions]
        self.state = _State()
        self.job: dict[str, Any] = {}

    def write_job(self, worker: Worker | None) -> None:
        """The models and all that is known before there is a library; `worker` begins with it."""
        self.job = self._job()
        if worker is not None:
            worker.give(limited(self._next_job(), self._limits(self.config.verify_timeout_s)))

    def run(self, library: Library, step: Step, worker: Worker | None) -> Findings:
        """Examine the library, in `worker` where it has begun, and in further processes as long as they fail."""
        self.step = step
        # What is compiled for a call of this process runs at the best level alone.
        levels = host_levels(library)[: 1 if self.wanted.recorded else None]
        built = {"library": str(library.path), "levels": levels}
        (self.folder / f"{BUILT}.half").write_text(json.dumps(built), encoding="utf-8")
        (self.folder / f"{BUILT}.half").rename(self.folder / BUILT)
        self.job |= built
        left = self.config.verify_timeout_s
        while not self.state.finished:
            if left <= 0:
                self.state.reject(self._open(), f"verification did not end within {self.config.verify_timeout_s:g} s")
                break
            limits = self._limits(left)
            ran = run_worker(self._next_job(), self.folder, limits) if worker is None else worker.follow(limits)
            worker = None
            left -= ran.seconds
            self._learn(ran)
        state = self.state
        return Findings(
            tuple(state.verdicts.values()), dict(state.rejected), tuple(state.notes), dict(state.faults),
            compared=state.observed,
        )  # fmt: skip

    def _limits(self, left_s: float) -> Limits:
        return Limits(left_s, self.config.verify_timeout_s / 5, self.config.verify_memory_bytes)

    def _next_job(self) -> dict[str, Any]:
        return {**self.job, **self.state.job(), "done": sorted(self._done())}

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
            elif "unverified" in event:
                self._take_unverified(int(event["unverified"]), str(event["why"]))
            elif "alone" in event:
                self._take_alone(str(event["alone"]))
            elif "observed" in event:
                state.observed = dict(event["observed"])
            elif "model" in event:
                state.observed["bindings"] = event["bindings"]
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

    def _take_unverified(self, index: int, why: str) -> None:
        """A smaller part of it may take inputs that can be made."""
        self.step(f"region {index}")
        if self.wanted.keep_unverified:
            self.state.notes.append(f"Region {index} was not verified ({why}) and kept, as was asked for.")
            self.state.verdicts[index] = Verdict(index, note=f"not verified: {why}")
        else:
            self.state.reject([index], f"not verified: {why}")
            self.state.faults[index] = "unverified"

    def _take_alone(self, why: str) -> None:
        note = f"The whole model was not run ({why}); its regions were verified on inputs of their own."
        if note not in self.state.notes:
            self.state.notes.append(note)

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
        self.state.notes.append(f"VERIFICATION FAILED, {what} falls back to ONNX Runtime: {reason}.")

    def _blame(self, ran: Ran) -> None:
        """The process did not survive a step: what that step ran is to blame."""
        step, state = ran.last_step, self.state
        if step["at"] == "region":
            state.reject([int(step["index"])], f"its kernel {ran.failure} in verification")
            state.faults[int(step["index"])] = "wrong"
        elif step["at"] == "observe" and not self.wanted.feeds:
            state.attempt = int(step["attempt"]) + 1
        elif step["at"] == "reference" and int(step["index"]) not in state.without_reference:
            state.without_reference.append(int(step["index"]))  # a reference never decides by what it costs
        elif step["at"] == "reference" and int(step["index"]) >= 0:
            state.reject([int(step["index"])], f"not verified: stock ONNX Runtime {ran.failure} on its nodes")
        elif step["at"] == "binding":
            state.skipped_bindings.append(int(step["number"]))
        elif step["at"] == "model" and step["binding"] is not None and step["binding"] not in state.suspects:
            state.suspects.append(int(step["binding"]))  # its regions will be looked at one by one
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
            "library": None,  # it may be under way
            "feeds": "feeds.npz" if self.wanted.feeds else None,
            "more": self._more_feeds(),
            "shapes": {name: list(shape) for name, shape in self.wanted.shapes.items()},
            "inputs": inputs,
            "outputs": [v.name for v in graph.outputs],
            "op_types": op_types_of(model_nodes(self._original())),
            "original": WATCHED if self.wanted.original is None else "original.onnx",
            "recipes": every_attempt(self.variants.model, "small", self.wanted.feeds or {}, self.wanted.shapes),
            "calls": None if self.wanted.keep_calls is None else str(self.wanted.keep_calls.absolute()),
            "nested": bool(self.variants.nested()),
            "whole": self.wanted.whole,
            "input_dims": {v.name: named_dims(v, self._original()) for v in graph.inputs if v.name in inputs},
            # A traced program is called at the sizes that its tracer allows, and its scalars tell them too.
            "other_sizes": not self.wanted.recorded,
            **self._write_models(),
        }

    def _dims(self, value: ir.Value) -> list[int | str | None] | None:
        """As they follow from each other; as they are declared where that is not known."""
        known = self.variants.generated.dims.get(value)
        return _value_dims(value) if known is None else list(known)

    def _contents(self, region: Alone, key: Keys) -> dict[str, list[int | str]]:
        """Of what feeds a region alone, by the names that it is fed under there."""
        known = self.variants.generated.contents
        names = {value: f"i{place}" for place, value in enumerate(region.plain_inputs)}
        return {names.get(v, key(v)): list(known[v]) for v in (*region.plain_inputs, *region.inputs) if v in known}

    def _more_feeds(self) -> list[str]:
        names = [f"feeds{place}.npz" for place in range(1, len(self.wanted.more_feeds) + 1)]
        for name, feeds in zip(names, self.wanted.more_feeds, strict=True):
            write_feeds(self.folder / name, feeds)
        return names

    def _original(self) -> ir.Model:
        """The model as it was given, where that is known."""
        return self.wanted.original or self.variants.model

    def _write_models(self) -> dict[str, Any]:
        bundle = Bundle(self.folder)
        try:
            fast, _ = self.variants.rewritten()
            bundle.add(fast, "fast.onnx")
            if self.wanted.original is not None:
                bundle.add(self.wanted.original, "original.onnx")
            alone = self.variants.alone()
            watched = [v for region in alone for v in (*region.inputs, *region.plain_inputs, *region.outputs)]
            bodies = WatchedBodies(self.variants.model, watched)
            produced = [v for v in bodies.outer() if not v.is_graph_input()]
            bundle.add(self.variants.model, WATCHED, produced)
            seen: set[str] = set()
            regions = [_region_job(region, bundle, seen, bodies.key, self._dims) for region in alone]
            for job, region in zip(regions, alone, strict=True):
                job["contents"] = self._contents(region, bodies.key)
            declared = {v.name or "": _dims(v) for v in (*produced, *self.variants.model.graph.outputs) if v.shape}
            return {"regions": regions, "declared": declared, "bodies": bodies.write(bundle)}
        finally:
            bundle.close()


def _value_dims(value: ir.Value) -> list[int | str | None] | None:
    return None if value.shape is None else [dim if isinstance(dim, int) else dim.value for dim in value.shape]


def _dims(value: ir.Value) -> list[int | None]:
    return [dim if isinstance(dim, int) else None for dim in value.shape or ()]


def _region_job(
    region: Alone, bundle: Bundle, seen: set[str], key: Keys, dims: Callable[[ir.Value], list[int | str | None] | None]
) -> dict[str, Any]:
    identical = region.entry in seen
    seen.add(region.entry)
    return {
        "index": region.index,
        "entry": region.entry,
        "identical": identical,
        "custom": bundle.add(region.custom, f"custom{region.index}.onnx").name,
        "plain": bundle.add(region.plain, f"plain{region.index}.onnx").name,
        "inputs": [key(v) for v in region.inputs],
        "plain_inputs": [key(v) for v in region.plain_inputs],
        "plain_dims": [dims(v) for v in region.plain_inputs],
        "carriers": {
            key(v): (v.dtype.name, dims(v)) for v in region.inputs if v not in region.plain_inputs and v.dtype
        },
        "outputs": [key(v) for v in region.outputs],
        "reads_inputs": all(v.is_graph_input() for v in (*region.inputs, *region.plain_inputs)),
        "op_types": list(region.op_types),
        "defined": defined_outputs(region.plain),
        "finite": defined_outputs(region.plain, finite=True),
    }


def _read_verdict(event: dict[str, Any]) -> Verdict:
    return Verdict(
        event["region"], event["error"], event["stock_error"], event["tolerance"], rejected=event["rejected"],
        levels=tuple(event["levels"]), note=event["note"], failing=tuple(event["failing"]),
        reference=event["reference"],
    )  # fmt: skip
