"""The records of the exporter.

Input: nothing. Output: `ExportOptions`, `Translation` with its slots, `ExportReport`, and `Refused`, which a converter
raises. Invariant: a slot per FX placeholder and per element of the FX output, in FX order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, Literal

import onnx_ir as ir

DEFAULT_OPSET: Final = 20
Kind = Literal["tensor", "int", "float", "bool", "constant", "input", "none", "unused"]
Origin = Literal["table", "user", "torchlib", "decomposition"]
Exporter = Literal["smelt", "torch"]


class Refused(Exception):  # noqa: N818  # an answer, not a fault
    """A call cannot be said in ONNX; the text says why. Another converter of the chain may still manage."""


@dataclass(frozen=True)
class ExportOptions:
    """How to translate.

    opset: of the standard domain. constants: tensors that become initializers instead of inputs, by placeholder
    name (frozen weights). torchlib, decompose: whether the fallbacks behind the table may be used. exporter: whose
    conversions come first, the table's ("smelt") or those of torch's own exporter ("torch"); a user's always do.
    sources: keep PyTorch source lines as the metadata `smelt.source` of nodes. runtime_types: insert casts where
    ONNX Runtime has no CPU kernel of a type. input_names, output_names: names of graph inputs (placeholders that
    are no constants) and outputs.
    new_guards: whether a decomposition may assume more about sizes than the graph does; only for callers that check
    what the graph's ShapeEnv then says.
    modules: keep the modules of nodes as the metadata `smelt.module`, a line "path class" per module.
    dim_names: symbols of the FX graph (`s0`) -> names of dimensions in the ONNX model.
    standalone: the model will run without torch: forms that are slower than torch's own kernels are better than none.
    """

    opset: int = DEFAULT_OPSET
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])
    torchlib: bool = True
    decompose: bool = True
    exporter: Exporter = "smelt"
    sources: bool = True
    runtime_types: bool = True
    new_guards: bool = False
    modules: bool = False
    input_names: tuple[str, ...] | None = None
    output_names: tuple[str, ...] | None = None
    dim_names: Mapping[str, str] = field(default_factory=dict[str, str])
    standalone: bool = False


@dataclass(frozen=True)
class InputSlot:
    """A placeholder. `index` is its place among the ONNX inputs; "unused" and "constant" ones are not fed."""

    name: str
    kind: Kind
    index: int | None = None


@dataclass(frozen=True)
class OutputSlot:
    """An element of the FX output.

    "tensor", "int", "float", "bool": ONNX output `index` (two slots may share one). "input": placeholder `index`,
    returned as it is. "constant": `value`. "none": None. `dtype` is torch's, of a tensor.
    """

    name: str
    kind: Kind
    index: int | None = None
    value: Any = None
    dtype: Any = None


@dataclass
class ExportReport:
    """Who converted what: target -> origin -> count; rules applied: name -> (count, seconds); seconds of it all."""

    origins: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    patterns: dict[str, tuple[int, float]] = field(default_factory=dict[str, tuple[int, float]])
    seconds: float = 0.0

    def count(self, target: str, origin: Origin) -> None:
        counts = self.origins.setdefault(target, {})
        counts[origin] = counts.get(origin, 0) + 1

    def simplified(self, name: str, count: int, seconds: float) -> None:
        """A pass or rule was applied so often."""
        before = self.patterns.get(name, (0, 0.0))
        self.patterns[name] = before[0] + count, before[1] + seconds

    def __str__(self) -> str:
        total: dict[str, int] = {}
        for counts in self.origins.values():
            for origin, count in counts.items():
                total[origin] = total.get(origin, 0) + count
        parts = ", ".join(f"{count} by {origin}" for origin, count in sorted(total.items()))
        lines = [f"{sum(total.values())} calls of {len(self.origins)} targets: {parts or 'none'}"]
        for name, (count, seconds) in sorted(self.patterns.items(), key=lambda item: -item[1][0]):
            lines.append(f"  {name}: {count} times, {seconds * 1e3:.1f} ms")
        return "\n".join(lines)


@dataclass(frozen=True)
class Guards:
    """What a one-op program assumes: the shapes of its inputs (ints and symbols), and conditions on the symbols."""

    shapes: tuple[tuple[Any, ...], ...]
    conditions: tuple[Any, ...]

    def fit(self, shapes: Sequence[Sequence[int]]) -> bool:
        """Whether the program serves inputs of these shapes."""
        found: dict[Any, int] = {}
        if [len(shape) for shape in shapes] != [len(shape) for shape in self.shapes]:
            return False
        for size, known in zip(chain(*shapes), chain(*self.shapes), strict=True):
            if isinstance(known, int):
                if size != known:
                    return False
            elif size < 2:
                return False
            else:
                found[known] = size
        return all(bool(condition.xreplace(found)) for condition in self.conditions)


@dataclass(frozen=True)
class Translation:
    """An ONNX model with the way from FX arguments to its inputs and from its outputs to FX results."""

    model: ir.Model
    inputs: tuple[InputSlot, ...]
    outputs: tuple[OutputSlot, ...]
    report: ExportReport
    guards: Guards | None = None
