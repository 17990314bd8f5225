"""Verification inside the examining process: each region, then the whole model, by the numerics contract.

Input: a job of `examine` and the models of its folder. Output: events: a verdict per region and one for the model.
Invariant: a region runs on the values that it gets in the real model, at every CPU level of this machine, and once more
with NaN and infinities among them; the whole model is compared with the one that was given, at several bindings of its
free sizes, and where it is wrong, its regions are looked at one by one there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from smelt.check.bindings import Binding, bindings, free_axes
from smelt.check.contract import Comparison
from smelt.check.events import Report, short
from smelt.check.feed_files import read_feeds
from smelt.check.findings import INPUTS_REFUSED
from smelt.check.inputs import MAX_ELEMENTS
from smelt.check.judge import Judge, Judged, same_bits
from smelt.check.observe import BUILT, WATCHED, Observed, Watched, observe
from smelt.check.references import BUDGET, forecast
from smelt.check.region_check import Passed, RegionCheck, level_libraries, open_at
from smelt.check.region_inputs import NoInputsError, region_calls
from smelt.check.watched_bodies import BodyRun
from smelt.ir.proto import load_file
from smelt.runtime import Session, SessionSettings

Array = np.ndarray[Any, Any]

_POLL_S: Final = 0.005
_NO_WORK: Final = object()
_EXPENSIVE: Final = 1e10  # multiply-adds of the first call, from which on it is verified in fewer runs
_CHEAP_S: Final = 0.03  # of stock ONNX Runtime's time, which no such model takes
_MOST_BYTES_AHEAD: Final = 1 << 28  # of stock's answers that wait for the kernels'
NOT_RUN: Final = "the model does not run"
MODEL: Final = -1  # the whole model, where regions are told by their index


def verify(job: Mapping[str, Any], folder: Path, report: Report) -> None:
    threads = int(job["threads"])
    watched = Watched(folder, threads, job["declared"], [BodyRun(folder, body, threads) for body in job["bodies"]])
    seen = observe(job, watched, report)
    verification = _Verification(job, folder, watched, seen, report) if seen is not None else None
    if job["library"] is None:
        job = {**job, **_built(folder, report, iter(()) if verification is None else verification.ahead())}
    if seen is None or verification is None:
        refused = INPUTS_REFUSED if job["feeds"] else "no generated inputs are accepted by stock ONNX Runtime"
        why = watched.failure or f"inputs that are no tensors, or of more than {MAX_ELEMENTS} elements"
        why = why if "does not load" in why else f"{refused}: {why}"
        if job["feeds"]:
            report(failed=why)
        else:
            _each_alone(job, folder, report, why)
        return
    assert seen.offer is not None
    report(observed={**seen.offer.plain(), "dims": job["input_dims"]})
    verification.run(level_libraries(Path(job["library"]), job["levels"], folder))


def _built(folder: Path, report: Report, work: Iterator[None]) -> dict[str, Any]:
    """The library and its levels, which is being built while stock ONNX Runtime runs the model. `work` is done in the
    meantime, and announces itself."""
    report(at="build")
    waiting = False
    while not (folder / BUILT).exists():
        if waiting:
            time.sleep(_POLL_S)
            continue
        waiting = next(work, _NO_WORK) is _NO_WORK
        report(at="build")
    return json.loads((folder / BUILT).read_bytes())


def _each_alone(job: Mapping[str, Any], folder: Path, report: Report, why: str) -> None:
    """Every region on inputs of its own, where the whole model has none."""
    libraries = level_libraries(Path(job["library"]), job["levels"], folder)
    check = RegionCheck(job, folder, libraries, report)
    report(alone=why)
    for region in job["regions"]:
        if region["index"] not in job["done"]:
            _tell_alone(region, check)


def _tell_alone(region: Mapping[str, Any], check: RegionCheck) -> Judged | None:
    """None where no inputs can be made for the region."""
    check.report(at="reference", index=region["index"])
    try:
        found = _alone(region, check)
    except NoInputsError as error:
        ops = ", ".join(region["op_types"])
        check.report(unverified=region["index"], why=f"stock ONNX Runtime takes no inputs made for {ops}: {error}")
        return None
    check.report(verdict=_verdict(region["index"], found, list(check.libraries)))
    return found


def _alone(region: Mapping[str, Any], check: RegionCheck) -> Judged:
    worst: Judged | None = None
    announce = partial(check.report, at="reference", index=region["index"])
    for sizes, values in region_calls(region, Judge(check.folder / region["plain"], "", (), announce)):
        found = check(region, values, thorough=not sizes)
        if found.comparison.problem:
            at = f"with {sizes}: " if sizes else ""
            return replace(found, comparison=replace(found.comparison, problem=f"{at}{found.comparison.problem}"))
        worst = found if worst is None or found.comparison.error > worst.comparison.error else worst
    assert worst is not None
    return worst


class _Verification:
    def __init__(
        self, job: Mapping[str, Any], folder: Path, watched: Watched, seen: Observed, report: Report
    ) -> None:  # fmt: skip
        self.job = job
        self.folder = folder
        self.watched = watched
        self.seen = seen
        self.report = report
        self.libraries: Mapping[str, Path] = {}
        self.whole = _WholeModel(job, folder, seen.seconds, report)
        self.bindings = self._bindings(seen)
        self.answers: dict[int | None, list[Any] | Exception] = {}
        if job["original"] == WATCHED and watched.session is not None:
            self.whole.judge.use(watched.session)

    def ahead(self) -> Iterator[None]:
        """Run stock ONNX Runtime on all that the whole model will be compared at, one call after the other."""
        self.report(at="observe", attempt=0 if self.seen.offer is None else self.seen.offer.attempt)
        _ = self.is_expensive
        self.answers[None] = held = self._stock(self.seen.feeds)
        held_bytes = _bytes_of(held)
        for number, binding in enumerate(self.bindings):
            if number in self.job["skipped_bindings"]:
                continue
            yield
            if held_bytes > _MOST_BYTES_AHEAD:
                return
            self.report(at="binding", number=number)
            self.answers[number] = held = self._stock(binding.feeds)
            held_bytes += _bytes_of(held)

    @cached_property
    def is_expensive(self) -> bool:
        """By the work that is counted, so that a busy machine decides nothing."""
        if self.seen.seconds < _CHEAP_S:
            return False
        model, feeds = load_file(self.folder / self.job["original"]), self.seen.feeds
        return forecast(model, {v: feeds[v.name] for v in model.graph.inputs if v.name in feeds}) > _EXPENSIVE

    def _stock(self, feeds: Mapping[str, Array]) -> list[Any] | Exception:
        try:
            return self.whole.stock(feeds)
        except Exception as error:  # onnxruntime raises many kinds
            return error

    def _answer(self, place: int | None, feeds: Mapping[str, Array]) -> list[Any] | None:
        """Of the first call, or of a binding. None where stock ONNX Runtime refuses the feeds."""
        found = self.answers.pop(place) if place in self.answers else self._stock(feeds)
        return None if isinstance(found, Exception) else found

    def run(self, libraries: Mapping[str, Path]) -> None:
        seen, self.libraries, self.whole.libraries = self.seen, libraries, libraries
        self.check = RegionCheck(self.job, self.folder, libraries, self.report)
        self.check.patience = seen.seconds
        self.check.is_expensive = self.is_expensive
        if not self._regions(seen):  # there will be another model
            return
        if not self.job["whole"]:
            self.report(alone="a kernel in it has code for a GPU alone, whose region was not run either")
            return
        self.whole.passed = self.check.passed
        found = self.whole(seen, self._stock_outputs(seen))
        other = self._other_branches(seen) if self.job["nested"] and not found.comparison.problem else None
        if other is not None:
            found = max(found, other, key=lambda f: (bool(f.comparison.problem), f.comparison.error))
        if found.comparison.problem:
            self._tell_model(found)
            return
        sizes: list[dict[str, int]] = []
        for number, binding in enumerate(self.bindings):
            if number in self.job["skipped_bindings"]:
                continue
            wrong = self._at(number, binding, sizes)
            if wrong is not None:
                if wrong.comparison.problem:
                    self._tell_model(wrong)
                return
        self._tell_model(found, sizes)

    def _stock_outputs(self, seen: Observed) -> list[Any]:
        """Of the model as it was given; of the prepared one where stock ONNX Runtime does not load the other."""
        answer = self._answer(None, seen.feeds)
        return [seen.values[name] for name in self.job["outputs"]] if answer is None else answer

    def _regions(self, seen: Observed) -> bool:
        done, right = set(self.job["done"]), not self.job["rejected"]
        for region in self.job["regions"]:
            if region["index"] in done:
                continue
            if not _is_known(region, seen.values):  # it lies in a branch that does not run on these values
                found = _tell_alone(region, self.check)
                right = right and found is not None and not found.comparison.problem
                continue
            found = self.check(region, seen.values)
            right = right and not found.comparison.problem
            self.report(verdict=_verdict(region["index"], found, list(self.libraries)))
        return right

    def _tell_model(self, found: Judged, sizes: list[dict[str, int]] | None = None) -> None:
        self.report(model=_verdict(None, found, list(self.libraries)), bindings=sizes or [])

    def _other_branches(self, seen: Observed) -> Judged | None:
        """The same call with every truth value of the inputs inverted, which takes the other branch of an If."""
        if not any(array.dtype == np.bool_ for array in seen.feeds.values()):
            return None
        inverted = {
            name: np.logical_not(array, out=np.empty_like(array)) if array.dtype == np.bool_ else array
            for name, array in seen.feeds.items()
        }
        return self._whole_on(inverted)

    def _whole_on(self, feeds: dict[str, Array]) -> Judged | None:
        """None where stock ONNX Runtime refuses the feeds."""
        stock = self._stock(feeds)
        return None if isinstance(stock, Exception) else self.whole(Observed(feeds, {}), stock)

    # other sizes

    def _bindings(self, seen: Observed) -> list[Binding]:
        """Further calls that the user gave, and other sizes of the first."""
        given = [read_feeds(self.folder / name) for name in self.job["more"]]
        calls = [Binding(f"call {place}", {}, {**seen.feeds, **feeds}) for place, feeds in enumerate(given, 2)]
        return [*calls, *(bindings(self.job["input_dims"], seen.feeds) if self.job["other_sizes"] else ())]

    def _at(self, number: int, binding: Binding, compared: list[dict[str, int]]) -> Judged | None:
        """None when all is right there; otherwise the model's verdict, which is empty where a region is to blame."""
        self.report(at="binding", number=number)
        feeds = dict(binding.feeds)
        stock = self._answer(number, feeds)
        if stock is None:  # sizes that the model does not take
            return None
        suspect, levels = number in self.job["suspects"], self._levels_at(binding)
        found = None if suspect else self.whole(Observed(feeds, {}), stock, number, levels)
        if found is not None and not found.comparison.problem:
            compared.append(dict(binding.sizes))
            return None
        if 0 in binding.sizes.values() and self.whole.judge.forbids(feeds, self.seen.feeds):
            return None
        self.report(at="binding", number=number)
        try:
            seen = self.watched(feeds)
        except Exception:
            return None
        where = str(binding)
        if self._blamed(seen, where, every_level=len(levels) > 1):
            return Judged(Comparison())
        if found is None:
            return Judged(Comparison(problem=f"with {where}: it did not survive"))
        if found.comparison.problem.startswith(NOT_RUN) and self.watched.contradicts(seen.values):
            return None  # the file says that there are no such sizes
        return replace(found, comparison=replace(found.comparison, problem=f"with {where}: {found.comparison.problem}"))

    def _levels_at(self, binding: Binding) -> list[str]:
        """The best one; every one where regions met no size above 1 at the others: a stride over an axis of size 1 may
        be anything. Of an expensive model the best one."""
        met = {self.seen.feeds[name].shape[axis] for name, axis in free_axes(self.job["input_dims"], self.seen.feeds)}
        levels = list(self.libraries)
        every = met == {1} and min(binding.sizes.values(), default=0) > 1 and not self.is_expensive
        return levels if every else levels[:1]

    def _blamed(self, seen: Observed, where: str, *, every_level: bool = False) -> bool:
        """Whether a region is wrong at these sizes; each such is told."""
        blamed = False
        for region in (one for one in self.job["regions"] if _is_known(one, seen.values)):
            found = self.check(region, seen.values, thorough=False, every_level=every_level)
            if found.comparison.problem:
                blamed = True
                comparison = replace(found.comparison, problem=f"with {where}: {found.comparison.problem}")
                found = replace(found, comparison=comparison)
                self.report(verdict=_verdict(region["index"], found, list(self.libraries)))
        return blamed


class _WholeModel:
    """The rewritten model against the one that was given."""

    def __init__(self, job: Mapping[str, Any], folder: Path, patience: float, report: Report) -> None:
        self.job = job
        self.folder = folder
        self.libraries: Mapping[str, Path] = {}  # none yet: stock ONNX Runtime needs none
        self.report = report
        self.patience = patience
        self.names: list[str] = job["outputs"]
        budget = 0.0 if MODEL in job["without_reference"] else BUDGET
        self.judge = Judge(folder / job["original"], "model", job["op_types"], self._announce, budget, self.names)
        self._sessions: dict[str, Session] = {}
        self.passed: Mapping[str, Passed] = {}

    def stock(self, feeds: Mapping[str, Any]) -> list[Any]:
        return self.judge.stock(feeds)

    def __call__(
        self, seen: Observed, stock: list[Any], binding: int | None = None, levels: Sequence[str] = ()
    ) -> Judged:
        """The worst of the levels, which are the best one alone unless others are given."""
        found = [self._at_level(level, seen, stock, binding) for level in levels or list(self.libraries)[:1]]
        return max(found, key=lambda one: (bool(one.comparison.problem), one.comparison.error))

    def _at_level(self, level: str, seen: Observed, stock: list[Any], binding: int | None) -> Judged:
        self.report(at="model", binding=binding, stock_s=self.patience)
        settings = SessionSettings(threads=int(self.job["threads"]), log_severity=4, spin=False)
        try:
            if level not in self._sessions:
                self._sessions[level] = open_at(self.folder / "fast.onnx", self.libraries, level, settings)
            results = self._sessions[level].run(self.names, seen.feeds)
        except Exception as error:
            return Judged(Comparison(problem=f"{NOT_RUN}: {short(error)}"))
        known = self._judged_before(results, stock) if binding is None else None
        return known or self.judge(seen.feeds, results, stock)

    def _judged_before(self, results: Sequence[Any], stock: Sequence[Any]) -> Judged | None:
        """The verdict on regions that read the model's own inputs and made the same bits, beside the same of stock's:
        they were held to a tolerance that is no larger."""
        worst: Judged | None = None
        for name, made, wanted in zip(self.names, results, stock, strict=True):
            known = self.passed.get(name)
            if known is None or not same_bits((known.result, known.stock), (made, wanted)):
                return None
            if worst is None or known.judged.comparison.error > worst.comparison.error:
                worst = known.judged
        return worst

    def _announce(self) -> None:
        self.report(at="reference", index=MODEL)


def _bytes_of(answer: list[Any] | Exception) -> int:
    return 0 if isinstance(answer, Exception) else sum(int(getattr(array, "nbytes", 0)) for array in answer)


def _is_known(region: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    return all(name in values for name in (*region["inputs"], *region["plain_inputs"], *region["outputs"]))


def _verdict(index: int | None, found: Judged, levels: list[str]) -> dict[str, Any]:
    comparison = found.comparison
    return {
        "region": index,
        "error": _finite(comparison.error),
        "stock_error": _finite(comparison.stock_error),
        "tolerance": comparison.tolerance,
        "rejected": comparison.problem,
        "failing": list(comparison.failing),
        "levels": levels,
        "note": found.note,
        "reference": found.reference,
    }


def _finite(value: float | None) -> float | None:
    return None if value is None else min(float(value), 1e300)
