"""Named dimensions -> numbers.

Input: a model and a size for some of its named dimensions. Output: the model with those sizes in every shape.
Invariant: a name that no graph input has is an error; derived dimensions that mention a bound name become unknown
until shapes are inferred again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

import onnx_ir as ir

from smelt.base.errors import ModelError
from smelt.ir.walk import model_graphs
from smelt.passes.rewriter.outcome import Outcome

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


class BindDims:
    """Specialize a model for known sizes."""

    def __init__(self, dims: Mapping[str, int]) -> None:
        self._dims = dict(dims)

    def __call__(self, model: ir.Model) -> Outcome:
        changes: Counter[str] = Counter()
        self._check(model)
        for graph in model_graphs(model):
            produced = (value for node in graph for value in node.outputs)
            for value in {*graph.inputs, *graph.outputs, *produced}:
                shape = value.shape
                if shape is None:
                    continue
                bound = [self._bound(dim) for dim in shape]
                if any(new is not old for new, old in zip(bound, shape, strict=True)):
                    value.shape = ir.Shape(bound)
                    changes["shape bound"] += 1
        return Outcome(changes)

    def _check(self, model: ir.Model) -> None:
        shapes = [value.shape for value in model.graph.inputs if value.shape is not None]
        names = {dim.value for shape in shapes for dim in shape if isinstance(dim, ir.SymbolicDim) and dim.value}
        for name, size in self._dims.items():
            if name not in names:
                known = ", ".join(sorted(names)[:20]) or "none"
                raise ModelError(
                    "SM-PASS-001", f"no input has a dimension named {name!r}", hint=f"Named dimensions: {known}."
                )
            if isinstance(size, bool) or not 0 <= size < 1 << 62:
                raise ModelError(
                    "SM-PASS-001", f"dimension {name!r} cannot be {size}", hint="Give a size of 0 or more."
                )

    def _bound(self, dim: int | ir.SymbolicDim) -> int | ir.SymbolicDim:
        if isinstance(dim, int) or dim.value is None:
            return dim
        if dim.value in self._dims:
            return self._dims[dim.value]
        mentioned = not self._dims.keys().isdisjoint(_WORD.findall(dim.value))
        return ir.SymbolicDim(None) if mentioned else dim
