"""The debug backend: a model run by the reference evaluator of `onnx`, every result told.

Input: a model and what it is fed. Output: its outputs, and a line for each node: name, op, type, shape, extremes, NaN,
the line of the program. Invariant: slow and exact to the ONNX standard; ONNX Runtime and smelt's kernels are not used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

Tell = Callable[[str], None]


class TellingEvaluator:
    """Runs a model node by node."""

    def __init__(self, model: ir.Model, tell: Tell) -> None:
        self._tell = tell
        self._makers = {value.name or "": node for node in model.graph for value in node.outputs}
        proto = ir.to_proto(model)
        self._evaluator = _Evaluator(proto, told=self._result)

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """All outputs. What was computed before a node fails has been told."""
        self._tell("smelt debug: a graph of " + f"{len(self._makers)} results, fed with " + _feeds(feeds))
        return list(self._evaluator.run(None, dict(feeds)))

    def _result(self, name: str, value: Any) -> None:
        node = self._makers.get(name)
        if node is not None:
            self._tell(f"  {name} = {node.op_type}: {summary(value)}{_source(node)}")


class _Evaluator(ReferenceEvaluator):
    """Tells of results as they come. The class makes evaluators of itself for functions: they are silent."""

    def __init__(self, proto: Any, *args: Any, told: Callable[[str, Any], None] | None = None, **kwargs: Any) -> None:
        self._told = told
        super().__init__(proto, *args, **kwargs)

    def _log(self, level: int, pattern: str, *args: Any) -> None:
        del level
        if self._told is not None and pattern.startswith(" + ") and len(args) == 2:  # a name and a value
            self._told(*args)


def summary(value: Any) -> str:
    """Type, shape, extremes, and what is not finite."""
    array = np.asarray(value)
    text = f"{array.dtype}{list(array.shape)}"
    if not array.size or array.dtype.kind not in "biufV":
        return text
    wide = array.astype(np.int64 if array.dtype.kind == "b" else np.float64) if array.dtype.kind in "bfV" else array
    finite = wide[np.isfinite(wide)] if wide.dtype.kind == "f" else wide.reshape(-1)
    if finite.size:
        text += f" in [{finite.min():.6g}, {finite.max():.6g}]"
    if wide.dtype.kind == "f":
        nan, infinite = int(np.isnan(wide).sum()), int(np.isinf(wide).sum())
        text += (f", {nan} NaN" if nan else "") + (f", {infinite} infinite" if infinite else "")
    return text


def _feeds(feeds: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {summary(value)}" for name, value in feeds.items()) or "nothing"


def _source(node: ir.Node) -> str:
    line = node.metadata_props.get("smelt.source", "")
    return f"  # {line}" if line else ""
