"""Cast of a Cast -> one Cast.

Input: two casts in a row. Output: one, from the first type to the last. Invariant: the type between can hold every
value of the first, so nothing is rounded or cut on the way.
"""

from __future__ import annotations

import onnx_ir as ir

from smelt.passes.rewriter.rules import Rewrite, Rule
from smelt.passes.rewriter.surgery import is_op

D = ir.DataType
# type -> types that hold all of its values
_WIDER = {
    D.BOOL: frozenset((D.INT8, D.UINT8, D.INT16, D.INT32, D.INT64, D.FLOAT16, D.BFLOAT16, D.FLOAT, D.DOUBLE)),
    D.INT8: frozenset((D.INT16, D.INT32, D.INT64, D.FLOAT16, D.FLOAT, D.DOUBLE)),
    D.UINT8: frozenset((D.INT16, D.INT32, D.INT64, D.FLOAT16, D.FLOAT, D.DOUBLE)),
    D.INT16: frozenset((D.INT32, D.INT64, D.FLOAT, D.DOUBLE)),
    D.INT32: frozenset((D.INT64, D.DOUBLE)),
    D.FLOAT16: frozenset((D.FLOAT, D.DOUBLE)),
    D.BFLOAT16: frozenset((D.FLOAT, D.DOUBLE)),
    D.FLOAT: frozenset((D.DOUBLE,)),
}
_FLOATS = frozenset((D.FLOAT16, D.BFLOAT16, D.FLOAT, D.DOUBLE))


def _apply(node: ir.Node, rewrite: Rewrite) -> ir.Value | None:
    """Cast of a Cast to a type that holds all values of the first -> one Cast"""
    middle = node.inputs[0]
    inner = middle.producer() if middle is not None else None
    source = inner.inputs[0] if inner is not None and is_op(inner, "Cast") else None
    if source is None or middle is None or source.dtype is None or middle.dtype is None:
        return None
    target = ir.DataType(node.attributes["to"].as_int())
    if middle.dtype not in _WIDER.get(source.dtype, ()) or (target in _FLOATS) < (middle.dtype in _FLOATS):
        return None  # floats out of range become whatever integers they like: keep what was said
    if source.dtype == target:
        return source
    return rewrite.op("Cast", source, like=node.outputs[0], to=target.value)


MERGE_CASTS = Rule("merge-casts", _apply, frozenset(("Cast",)), ("default", "training"))
