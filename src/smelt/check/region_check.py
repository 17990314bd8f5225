"""One region against the nodes that it replaces, on given values.

Input: a region's job, and the values of its inputs and outputs in a call of the model. Output: `Judged`. Invariant: the
kernel runs between `at="region"` events and all else between `at="reference"` ones, so that a crash or a hang is
blamed on what was running.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from smelt.base.target import find_target, host_build, host_level
from smelt.check.contract import STOCK_FACTOR, Comparison, joined, op_class, tolerance_of
from smelt.check.events import Report, short
from smelt.check.judge import Judge, Judged
from smelt.check.nan_models import keeping_nan
from smelt.check.references import BUDGET
from smelt.check.special_values import DROPS_NAN, SPECIAL_KIND, compare_special, enlarged, overflows, sprinkled
from smelt.ir.proto import load_file
from smelt.ops.reference import NoReferenceError
from smelt.runtime import Session, SessionSettings, session_for, write_call

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Passed:
    """An output that was right beside stock's."""

    result: Any
    stock: Any
    judged: Judged


def level_libraries(library: Path, levels: Sequence[str], folder: Path) -> dict[str, Path]:
    """One copy of the library per level, the best first. A copy is another library to the loader, which reads the
    level when it is registered."""
    copies: dict[str, Path] = {}
    for level in levels:
        copies[level] = folder / f"{level}_{library.name}"
        if not copies[level].exists():
            shutil.copyfile(library, copies[level])
    return copies


def _most(level: str) -> str:
    """What a library is told so that it runs at this level, with all micro-kernels that this machine can run there."""
    target = find_target(level)
    build = host_build(target=target)
    return level if build is None else "" if target == host_level() else build.name


def open_at(model: Path, libraries: Mapping[str, Path], level: str, settings: SessionSettings) -> Session:
    os.putenv("SMELT_LEVEL", _most(level))
    return session_for(model, libraries[level], settings)


class RegionCheck:
    """Checks regions one after the other; sessions live as long as their region is looked at.

    `passed` has outputs by name that were right at the best level, of regions that read the model's inputs alone."""

    def __init__(self, job: Mapping[str, Any], folder: Path, libraries: Mapping[str, Path], report: Report) -> None:
        self.folder = folder
        self.libraries = libraries
        self.report = report
        self.settings = SessionSettings(threads=int(job["threads"]), log_severity=4, spin=False)
        self.calls = Path(job["calls"]) if job.get("calls") else None
        self.without_reference = set(job["without_reference"])
        self.best = next(iter(libraries))
        self.patience = 0.0
        self.is_expensive = False
        self.passed: dict[str, Passed] = {}

    def __call__(
        self, region: Mapping[str, Any], values: Mapping[str, Any], *, thorough: bool = True, every_level: bool = False
    ) -> Judged:
        """`thorough`: at every CPU level, with NaN and infinities among the inputs, and with large numbers."""
        try:
            thorough = thorough and not region["identical"]
            levels = list(self.libraries) if thorough or every_level else [self.best]
            return _OneRegion(self, region, values).run(levels, thorough)
        except MemoryError:
            raise
        except Exception as error:
            return Judged(Comparison(problem=f"the kernel refused its inputs: {short(error)}"))


class _OneRegion:
    def __init__(self, check: RegionCheck, region: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        self.check = check
        self.region = region
        self.index: int = region["index"]
        self.values = {name: values[name] for name in (*region["inputs"], *region["plain_inputs"])}
        self.inputs, self.feeds = self._operands(self.values)
        self.stock = [values[name] for name in region["outputs"]]
        budget = 0.0 if self.index in check.without_reference else BUDGET
        path = check.folder / region["plain"]
        self.judge = Judge(path, op_class(region["op_types"]), region["op_types"], self._announce, budget)
        self.sessions: dict[str, Session] = {}

    def run(self, levels: Sequence[str], thorough: bool) -> Judged:
        if self.check.calls is not None and not self.region["identical"]:
            self._keep(self.check.calls)
        worst: Judged | None = None
        results: list[Any] = []
        for level in reversed(levels):  # the lowest has no FMA and rounds most, so that it shows most
            results = self._run(level, self.inputs)
            found = self.judge(self.feeds, results, self.stock)
            if found.comparison.problem:  # there will be another kernel
                return replace(
                    found, comparison=replace(found.comparison, problem=f"{level}: {found.comparison.problem}")
                )
            worst = found if worst is None or found.comparison.error > worst.comparison.error else worst
        assert worst is not None
        self._keep_passed(results, worst)
        if not thorough:
            return worst
        levels = levels[:1] if self.check.is_expensive else levels
        wrong = [*self._special(levels, self._share(worst.comparison)), *self._large(levels)]
        return replace(worst, comparison=joined(wrong)) if wrong else worst

    def _keep_passed(self, results: Sequence[Any], judged: Judged) -> None:
        if self.region.get("reads_inputs"):
            made = zip(self.region["outputs"], results, self.stock, strict=True)
            self.check.passed.update({name: Passed(result, stock, judged) for name, result, stock in made})

    def _operands(self, values: Mapping[str, Array]) -> tuple[list[Array], dict[str, Array]]:
        """What the kernel reads, and what the nodes read that it replaces."""
        plain = {f"i{place}": values[name] for place, name in enumerate(self.region["plain_inputs"])}
        return [values[name] for name in self.region["inputs"]], plain

    def _announce(self) -> None:
        self.check.report(at="reference", index=self.index)

    def _run(self, level: str, inputs: Sequence[Array]) -> list[Any]:
        self.check.report(at="region", index=self.index, stock_s=self.check.patience)
        if level not in self.sessions:
            path = self.check.folder / self.region["custom"]
            self.sessions[level] = open_at(path, self.check.libraries, level, self.check.settings)
        return self.sessions[level].run(None, {f"i{place}": array for place, array in enumerate(inputs)})

    def _special(self, levels: Sequence[str], share: float) -> list[Comparison]:
        """NaN and infinities must come out where stock ONNX Runtime has them, or where the reference has. Other errors
        may be `share` times the tolerance, since they are as large without special values."""
        places, values = self.region["defined"], sprinkled(self.values)
        if not places or values is None:
            return []
        inputs, feeds = self._operands(values)
        self._announce()
        try:
            stock = self.judge.stock(feeds)
        except Exception:  # it has no kernels for these nodes
            stock = None
        results = {level: self._run(level, inputs) for level in levels}
        unlike: Callable[[Sequence[Any] | None], dict[str, list[Any]]] = lambda answer: {  # noqa: E731
            level: made for level, made in results.items()
            if answer is None or compare_special(made, answer, None, places, share, self.judge.rounded).problem
        }  # fmt: skip
        results = unlike(stock)
        results = unlike(self._with_nan_kept(feeds)) if results else {}
        if not results:
            return []
        reference = _or_none(self.judge.reference, feeds)  # takes longer than all the rest, and is rarely needed
        if reference is None and not DROPS_NAN.isdisjoint(self.region["op_types"]):
            return []
        unlike_at = partial(_unlike, stock=stock, reference=reference, places=places, share=share,
                            rounded=self.judge.rounded)  # fmt: skip
        found = [(level, unlike_at(made)) for level, made in results.items()]
        return [replace(one, problem=f"{level}: {one.problem}") for level, one in found if one.problem]

    def _share(self, ordinary: Comparison) -> float:
        """How many times the tolerance results are off without special values, and may be off with them. That of the
        comparison may have grown already, since a score of hundreds leaves a softmax few digits."""
        outputs = zip(self.stock, self.judge.rounded, strict=True)
        plain = max((tolerance_of(one, SPECIAL_KIND, rounded=name) for one, name in outputs), default=0.0)
        return max(1.0, STOCK_FACTOR * ordinary.error / plain) if plain else 1.0

    def _large(self, levels: Sequence[str]) -> list[Comparison]:
        """Numbers so large that exponentials, gates and sums of squares saturate give finite results where stock ONNX
        Runtime and the reference have such. How far they are apart says nothing: a score of a million has no digits
        behind the point."""
        places, values = self.region["finite"], enlarged(self.values)
        if not places or values is None:
            return []
        inputs, feeds = self._operands(values)
        self._announce()
        try:
            stock = self.judge.stock(feeds)
        except Exception:  # it has no kernels for these nodes, or none for such numbers
            return []
        found = {level: overflows(self._run(level, inputs), stock, places) for level in levels}
        if not any(found.values()):
            return []
        reference = _or_none(self.judge.overflow_reference, feeds)
        return [
            Comparison(problem=f"{level}: with large numbers among the inputs, NaN or inf instead of finite values",
                       failing=(place,))
            for level, outputs in found.items() for place, where in outputs
            if reference is None or np.isfinite(np.asarray(reference[place])[where]).any()
        ]  # fmt: skip

    def _with_nan_kept(self, feeds: Mapping[str, Array]) -> list[Any] | None:
        """What stock ONNX Runtime gives where maxima keep NaN; None where they do so already, or cannot."""
        if DROPS_NAN.isdisjoint(self.region["op_types"]):
            return None
        try:
            path = keeping_nan(self.judge.path)
            return None if path is None else self.judge.answer_of(path, feeds)
        except Exception:  # onnxruntime raises many kinds
            return None

    def _keep(self, calls: Path) -> None:
        """The call as the standalone program reads it: constants are inputs there too."""
        model = load_file(self.check.folder / self.region["custom"])
        fed = {f"i{place}": array for place, array in enumerate(self.inputs)}
        arrays = [_operand(value, fed) for value in model.graph[0].inputs]
        write_call(calls / f"{self.region['entry']}.call", arrays, self.stock)


def _or_none(reference: Callable[[Mapping[str, Array]], list[Any]], feeds: Mapping[str, Array]) -> list[Any] | None:
    try:
        return reference(feeds)
    except NoReferenceError:
        return None


def _unlike(
    results: Sequence[Any], stock: Sequence[Any] | None, reference: Sequence[Any] | None, places: Sequence[int],
    share: float, rounded: Sequence[str],
) -> Comparison:  # fmt: skip
    """How results differ from the reference; from stock ONNX Runtime where there is none."""
    if reference is not None:
        found = compare_special(results, reference, stock, places, share, rounded)
        return replace(found, problem=found.problem and f"with NaN and inf among the inputs, {found.problem}")
    if stock is None:
        return Comparison()
    found = compare_special(results, stock, None, places, share, rounded)
    return replace(found, problem="NaN and inf come out elsewhere than with stock ONNX Runtime")


def _operand(value: ir.Value | None, fed: Mapping[str, Array]) -> Array | None:
    if value is None:
        return None
    return fed[value.name or ""] if value.const_value is None else np.asarray(value.const_value.numpy())
