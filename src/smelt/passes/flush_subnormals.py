"""Subnormal weights -> zeros.

Input: a model. Output: the model, whose weights of convolutions, products and batch normalizations have zeros in place
of elements below 2^-126. Invariant: a tensor keeps its elements where it has none that is much larger: then they may
matter.

Training lets channels that are never used decay to such values. They contribute nothing that a float32 sum could hold,
but a processor takes a hundred times as long for each multiplication with one.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_ir as ir

from smelt.ir.spilled import drop_pages
from smelt.passes.rewriter.outcome import Outcome
from smelt.passes.rewriter.surgery import ONNX, Array, array_of

MOST = 1 << 22  # elements of a weight that is looked at
LARGE = 2.0**-60
_OPS = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul", "BatchNormalization"))
_SMALLEST = 0x00800000  # bits of 2^-126
_SEEN = "smelt.flush-subnormals"


class FlushSubnormals:
    """Replace subnormal elements of weights by zeros."""

    def __call__(self, model: ir.Model) -> Outcome:
        changes: Counter[str] = Counter()
        for value in model.graph.initializers.values():
            if not _is_weight(value) or _was_seen(value):
                continue
            array = array_of(value, MOST)
            flushed = None if array is None or array.dtype != np.float32 else _flushed(array)
            drop_pages(value.const_value)
            if flushed is not None:
                value.const_value = ir.Tensor(flushed, name=value.name)
                changes["subnormal elements of a weight flushed"] += 1
        return Outcome(changes)


def _was_seen(value: ir.Value) -> bool:
    """Whether a round before this one has looked at the tensor, which takes as long as reading all of it."""
    seen = value.meta.get(_SEEN) is value.const_value
    value.meta[_SEEN] = value.const_value
    return seen


def _is_weight(value: ir.Value) -> bool:
    """Whether it is nothing but a right operand of the ops above."""
    uses = [(node, place) for node, place in value.uses()]
    known = all(node.domain == ONNX and node.op_type in _OPS and place > 0 for node, place in uses)
    return bool(uses) and known and not value.is_graph_input() and not value.is_graph_output()


def _flushed(array: Array) -> Array | None:
    """A copy without subnormals, where there are any beside large elements."""
    bits = np.ascontiguousarray(array).view(np.uint32) & np.uint32(0x7FFFFFFF)
    small = (bits - np.uint32(1)) < np.uint32(_SMALLEST - 1)
    if not small.any() or not float(np.nanmax(np.abs(array))) >= LARGE:
        return None
    return np.where(small.reshape(array.shape), np.float32(0), array)
