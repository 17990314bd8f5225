"""A compilation in a lower precision: what it is measured on, which layers stay wide, what it costs.

Input: a model and options with a precision. Output: the source and the options that are compiled, and the accuracy of
the artifact's outputs against the float32 model. Invariant: nothing is run where verification is off and no budget is
given; without a measure the report says why.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import onnx_ir as ir

from smelt.base.config import Config
from smelt.base.errors import PrecisionError, SmeltError
from smelt.base.progress import Progress
from smelt.check.answers import Answers, Asked, ask, decibels_of, powers
from smelt.check.calibration import Calls, answered_calls, read_calls
from smelt.check.moments import second_moments
from smelt.check.precision import Budget, Judging, Layer, Point, Search, lowered_model
from smelt.ir.load import load_model
from smelt.ir.save import save_model, weight_bytes
from smelt.options import Options
from smelt.passes import STATIC, WIDER, narrowed_notes, prepare_to_narrow
from smelt.report import counted

_MOST_BYTES: Final = 1 << 32  # of weights of a model that is run only for the report


@dataclass(frozen=True)
class Accuracy:
    """`outputs` has the ratio of signal to noise of each output in dB, over all calls; `value` is what the user's
    metric gave, where there is one."""

    precision: str
    outputs: Mapping[str, float]
    calls: int
    generated: bool
    budget: float = 0.0
    value: float | None = None
    layers: tuple[Layer, ...] = ()
    curve: tuple[Point, ...] = ()

    @property
    def note(self) -> str:
        on = f"{self.calls} {'generated' if self.generated else 'given'} call{'' if self.calls == 1 else 's'}"
        listed = (
            ", ".join(f"{name} {ratio:.1f} dB" for name, ratio in list(self.outputs.items())[:8]) or "none in floats"
        )
        said = f"--precision {self.precision}: outputs against float32 on {on}, signal to noise: {listed}."
        if self.value is not None:
            said += f" The metric gives {self.value:.6g}."
        if self.budget:
            wide = sum(layer.wide for layer in self.layers)
            said += f" The budget of {self.budget:g} keeps {wide} of {len(self.layers)} layers wider: {self._types()}."
        return said

    def _types(self) -> str:
        """Such as 20 w4, 3 w8, 1 float32."""
        kinds = Counter(layer.precision or "float32" for layer in self.layers)
        return ", ".join(f"{count} {kind}" for kind, count in kinds.items())


@dataclass
class Lowered:
    """Around a compilation. `source` and `options` are what is compiled."""

    source: Any
    options: Options
    config: Config
    progress: Progress
    problem: str = ""
    search: Search = field(default_factory=Search)
    calls: Calls = field(default_factory=list[dict[str, Any]])
    wide: Answers | None = None
    weights: tuple[str, ...] = ()  # what became of them, where they are chosen here

    def __enter__(self) -> Lowered:
        self._folder = tempfile.TemporaryDirectory(prefix="smelt-")
        try:
            if self._is_measured():
                self._begin(Path(self._folder.name))
        except BaseException:
            self._folder.cleanup()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    @property
    def judging(self) -> Judging:
        return Judging(self.options.budget, self.options.metric)

    def _is_measured(self) -> bool:
        """int8 and budgets cannot be had without running the model."""
        asked, options = bool(self.options.budget) or self.options.precision == STATIC, self.options
        return bool(options.precision) and (asked or (options.verify and self.config.verify))

    def _begin(self, folder: Path) -> None:
        needed = bool(self.options.budget) or self.options.precision == STATIC
        chosen = needed or self._has_feedback()
        try:
            model = load_model(self.source)
        except SmeltError:
            return  # the compilation says so
        if self.options.precision == STATIC and self.options.calibrate is None:
            raise PrecisionError("SM-PRECISION-002", "--precision int8 needs calibration data")
        given = [] if self.options.calibrate is None else read_calls(model, self.options.calibrate)
        if not given and self.options.feeds is not None:
            given = [dict(self.options.feeds)]
        if not needed and weight_bytes(model) > _MOST_BYTES:
            self.problem = "the model has more than 4 GB of weights, and is not run for that"
            return
        file = self._file(model, folder)
        self.calls, answered = answered_calls(model, file, given, self.options.shapes, folder, self.config)
        if isinstance(answered, str):
            self.problem = answered
            if needed:
                raise PrecisionError("SM-PRECISION-001", f"the float32 model does not run on the data: {answered}")
            return
        self.wide = answered
        if chosen:
            self._choose(model, folder)

    def _file(self, model: ir.Model, folder: Path) -> Path:
        if isinstance(self.source, (str, Path)):
            return Path(self.source)
        save_model(model, folder / "wide.onnx", data_name="wide.data")
        return folder / "wide.onnx"

    def _choose(self, model: ir.Model, folder: Path) -> None:
        """The type of each layer, and the model with them that is compiled."""
        assert self.wide is not None
        prepared = model.clone()
        prepare_to_narrow(prepared)
        precision = self.options.precision
        budget = Budget(prepared, precision, self.calls, self.wide, self.judging, folder, self.config, self.progress)
        if self._has_feedback():
            budget.moments = second_moments(prepared, self.calls, folder, self.config)
        if self.options.budget:
            self.search = budget.run()
        given = {name: rung for name, rung in self.search.assigned.items() if rung != precision}
        self.source, done = lowered_model(budget, given, folder / "chosen")
        self.options = dataclasses.replace(self.options, narrowed=True)
        self.weights = tuple(narrowed_notes(precision, done)) if done else ()
        if budget.moments:
            count = counted(len(budget.moments), "product")
            self.weights += (f"--precision {precision}: {count} with error feedback on the calibration data.",)

    def _has_feedback(self) -> bool:
        """Whether weights are rounded for what they are multiplied by: only data of the user's tell that."""
        rungs = (self.options.precision, *WIDER[self.options.precision])
        return self.options.calibrate is not None and not {"w4", "w8"}.isdisjoint(rungs)

    def measure(self, artifact: Path) -> Accuracy | None:
        """What the artifact's outputs have lost; None where nothing was measured."""
        if self.wide is None:
            return None
        made = ask(Asked(artifact, self.calls), Path(self._folder.name) / "artifact", self.config)
        if isinstance(made, str):
            self.problem = made
            return None
        found = {name: decibels_of(*power) for name, power in powers(self.wide.calls, made.calls).items()}
        value = None if self.options.metric is None else self.judging.value(self.wide.calls, made.calls)
        generated = self.options.calibrate is None and self.options.feeds is None
        return Accuracy(
            self.options.precision, found, len(self.calls), generated,
            self.options.budget, value, self.search.layers, self.search.curve,
        )  # fmt: skip

    def notes(self, accuracy: Accuracy | None) -> tuple[str, ...]:
        if accuracy is not None:
            return (*self.weights, accuracy.note)
        if self.problem:
            unmeasured = (
                f"--precision {self.options.precision}: the accuracy of outputs was not measured: {self.problem}."
            )
            return (*self.weights, unmeasured)
        return self.weights
