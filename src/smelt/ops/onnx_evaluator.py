"""onnx.reference with every float a float64.

Input: a graph and arrays. Output: arrays. Invariant: when `wide`, every float is a float64 from input to output,
in subgraphs and function bodies too; when not, the result is that of the onnx package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import onnx
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops import load_op

from smelt.ops.wide_floats import Array, Value, widened

_NARROW_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def run(graph: onnx.GraphProto, opsets: dict[str, int], feeds: Mapping[str, Any], *, wide: bool) -> Sequence[Value]:
    """All outputs of the graph."""
    evaluator = (_WideEvaluator if wide else ReferenceEvaluator)(graph, opsets=opsets)
    return cast("Sequence[Value]", evaluator.run(None, dict(feeds)))


def _standard(op: OpRun) -> OpRun:
    """The onnx package's own implementation of the same node."""
    version = op.run_params["opsets"][""]
    return load_op("", op.onnx_node.op_type, version)(op.onnx_node, op.run_params)


class Cast(OpRun):
    op_domain = ""

    def _run(self, x: Array, to: int = 0, **_: Any) -> tuple[Any, ...]:
        if to in _NARROW_FLOATS and x.dtype.kind in "fiub":
            return (x.astype(np.float64),)
        return tuple(_standard(self).run(x))


class CastLike(OpRun):
    op_domain = ""

    def _run(self, x: Array, like: Array, **_: Any) -> tuple[Any, ...]:
        if like.dtype == np.float64 and x.dtype.kind in "fiub":
            return (x.astype(np.float64),)
        return tuple(_standard(self).run(x, like))


class _WideEvaluator(ReferenceEvaluator):
    """Subgraphs and function bodies are evaluated by this class too."""

    def __init__(
        self, proto: Any, opsets: dict[str, int] | None = None, functions: Any = None, verbose: int = 0, **_: Any
    ) -> None:
        super().__init__(proto, opsets=opsets, functions=functions, verbose=verbose, new_ops=[Cast, CastLike])
        constants = cast("dict[str, Any]", self.rt_inits_)
        constants.update({name: widened(a) for name, a in constants.items()})
        for op in cast("list[Any]", self.rt_nodes_):
            op.run = _widening(op.run)


def _widening(run: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*inputs: Value, **context: Any) -> tuple[Any, ...]:
        return tuple(widened(y) for y in run(*inputs, **context))

    return wrapped
