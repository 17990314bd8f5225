"""An artifact or a plain ONNX file -> outputs by name.

Input: a `ModelRef`, a number of threads. Output: `ModelCall`. Invariant: a model whose batch dimension is fixed is
called with exactly that many rows, and gives the rows that were meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from smelt.base.errors import InputError
from smelt.frontends.batch.prepare import Prepared, Preparer
from smelt.frontends.batch.records import Feed, ModelRef
from smelt.runtime import Executable, InputSpec, Session, SessionSettings, input_specs, output_specs, session_for

Array = npt.NDArray[Any]


class ModelCall:
    """One session."""

    def __init__(self, model: ModelRef, threads: int) -> None:
        settings = SessionSettings(threads=threads)
        self.session: Session = (
            session_for(Path(model.artifact), None, settings)
            if model.stock
            else Executable.open(Path(model.artifact), settings).session
        )
        self.inputs = input_specs(self.session)
        self.outputs = output_specs(self.session)
        self.fixed = fixed_batch(self.inputs)

    def run(self, preparer: Preparer, prepared: Prepared, rows: Array, wanted: Sequence[str]) -> dict[str, Any]:
        """Outputs of the prepared rows `rows`."""
        return self.call(self.feeds(preparer, prepared, rows), len(rows), wanted)

    def feeds(self, preparer: Preparer, prepared: Prepared, rows: Array) -> dict[str, Array]:
        if self.fixed and len(rows) < self.fixed:
            rows = np.concatenate([rows, np.repeat(rows[-1:], self.fixed - len(rows))])
        return preparer.feeds(prepared, rows)

    def call(self, feeds: dict[str, Array], count: int, wanted: Sequence[str]) -> dict[str, Any]:
        names = list(wanted)
        made = self.session.run(names, feeds)
        if not self.fixed or count == self.fixed:
            return dict(zip(names, made, strict=True))
        return {
            name: value[:count] if isinstance(value, np.ndarray) and value.shape[:1] == (self.fixed,) else value
            for name, value in zip(names, made, strict=True)
        }


def fixed_batch(specs: Sequence[InputSpec]) -> int:
    """The size that every input's first axis must have, or 0."""
    sizes = {spec.shape[0] for spec in specs if spec.shape and isinstance(spec.shape[0], int)}
    if len(sizes) > 1:
        told = "; ".join(str(spec) for spec in specs)
        raise InputError("SM-BATCH-011", f"the inputs have different fixed batch dimensions: {told}")
    return next(iter(sizes), 0)


def check_batch(specs: Sequence[InputSpec], feeds: Sequence[Feed], batch: int) -> None:
    """Refuse a batch size that the model cannot take, and inputs that have no batch dimension."""
    fed = {feed.input for feed in feeds}
    for spec in specs:
        if spec.name in fed and spec.shape is None and not spec.type.startswith("tensor"):
            raise InputError("SM-BATCH-011", f"input {spec.name!r} is {spec.type}, not a tensor")
    fixed = fixed_batch(specs)
    if fixed and batch and batch != fixed:
        raise InputError(
            "SM-BATCH-011",
            f"the model's batch dimension is fixed to {fixed}, and --batch {batch} was asked for",
            hint="Leave --batch out (a last batch is filled up), or export the model with a free batch dimension.",
        )
