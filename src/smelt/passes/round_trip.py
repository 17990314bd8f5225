"""What a lower precision makes of weights and rows, as float32 numbers again.

Input: a precision, and the weights of one layer; or a model whose weights were narrowed. Output: the weights as the
narrowed layer would multiply them; the model with its rows rounded as kernels round them. Invariant: both are for
measuring what a precision costs; no artifact holds them.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir

from smelt.ir.narrowed import is_narrowed
from smelt.ir.walk import model_nodes
from smelt.passes.quantize_dynamic import quantize_columns
from smelt.passes.quantize_weights import quantize, restored
from smelt.passes.rewriter.surgery import Array, Names, insert_node

_BITS = {"w8": 8, "w4": 4}
_TYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "fp16": np.dtype(np.float16)}


def round_trip(precision: str, plain: Array, columns_last: bool) -> Array:
    """`columns_last`: (K, N), as MatMul has its weights; else columns are along the first axis."""
    if precision in _TYPES:
        with np.errstate(over="ignore"):
            return plain.astype(_TYPES[precision]).astype(np.float32)
    matrix = plain.T if columns_last and plain.ndim == 2 else plain.reshape(len(plain), -1)
    if precision in _BITS:
        made = restored(quantize(matrix, _BITS[precision]))
    else:
        numbers, scales = quantize_columns(matrix)
        made = numbers * scales[:, None]
    made = made.T if columns_last and plain.ndim == 2 else made.reshape(plain.shape)
    return np.ascontiguousarray(made, dtype=np.float32)


def rounded_rows(model: ir.Model) -> None:
    """Round to bfloat16 what is multiplied by marked bfloat16 weights, in place: stock ONNX Runtime does not."""
    names = Names(model)
    known: dict[ir.Value, ir.Value] = {}
    for node in list(model_nodes(model)):
        casts = [None if value is None else value.producer() for value in node.inputs[:2]]
        if not any(cast is not None and is_narrowed(cast) and _is_bfloat16(cast) for cast in casts):
            continue
        for place, cast in enumerate(casts):
            value = node.inputs[place]
            if value is None or (cast is not None and is_narrowed(cast)):
                continue
            if value not in known:
                known[value] = _rounded(node, value, names)
            node.replace_input_with(place, known[value])


def _is_bfloat16(cast: ir.Node) -> bool:
    source = cast.inputs[0]
    return source is not None and source.dtype == ir.DataType.BFLOAT16


def _rounded(before: ir.Node, value: ir.Value, names: Names) -> ir.Value:
    made = value
    for dtype in (ir.DataType.BFLOAT16, ir.DataType.FLOAT):
        to = (ir.AttrInt64("to", dtype),)
        made = insert_node(before, "Cast", [made], value, names, attributes=to).outputs[0]
        made.type = ir.TensorType(dtype)
    return made
