"""How far stock ONNX Runtime's own functions are off, where that is known and outputs show it.

Input: a model. Output: for each output an absolute error that says nothing of a kernel, 0 mostly. Invariant: it counts
only where stock has to serve as the reference; a float64 reference has no such errors.
"""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

# Stock's Sigmoid adds one half last: near 0 it is off by last places of that, up to 1.4 * 2^-23 (measured from -40 to
# 40), which is all of a result below -16. A detector that sees nothing gives only such.
OFF_BY: Final = {"Sigmoid": 2.0**-22}
_MOVES: Final = frozenset(
    ("Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Concat", "Split", "Gather",
     "Expand", "Resize", "MaxPool", "Dropout")
)  # fmt: skip


def known_errors(model: ir.Model) -> list[float]:
    """By output."""
    return [_known(value) for value in model.graph.outputs]


def _known(value: ir.Value) -> float:
    """The largest of all functions that the value's elements may come from."""
    pending, seen, most = [value], {value}, 0.0
    while pending:
        node = pending.pop().producer()
        if node is None:
            continue
        most = max(most, OFF_BY.get(node.op_type, 0.0) if not node.domain else 0.0)
        if node.op_type in _MOVES:
            pending += [one for one in node.inputs if one is not None and one not in seen]
            seen.update(pending)
    return most
