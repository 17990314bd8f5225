"""Float32 weights of products and convolutions -> bfloat16 or float16, widened where they are used.

Input: a float32 model. Output: constant weights in the narrow type behind a Cast to float32, marked so that no pass
folds it. Invariant: activations, biases, inputs and outputs stay float32; a weight that the type does not hold (NaN,
infinities, beyond the range of float16) and small ones stay as they are; one weight is narrowed once in a graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import ml_dtypes
import numpy as np
import onnx_ir as ir

from smelt.ir.narrowed import is_kept_wide, mark_narrowed
from smelt.ir.walk import model_graphs
from smelt.passes.quantize_weights import Quantized, decibels
from smelt.passes.rewriter.surgery import Array, Names, add_constant, insert_node, is_op, tensor_of

_LEAST: Final = 1024  # elements of a weight that is worth it
_BFLOAT16_OPSET: Final = 13  # Cast takes it
_TYPES: Final[dict[str, tuple[type, int]]] = {
    "bf16": (ml_dtypes.bfloat16, _BFLOAT16_OPSET),
    "fp16": (np.float16, 6),
}


def narrow_weights(precision: str) -> Callable[[ir.Model], list[Quantized]]:
    """What narrows all weights of a model in place, to "bf16" or "fp16"."""
    dtype, opset = _TYPES[precision]
    return lambda model: _narrowed(model, dtype) if model.graph.opset_imports.get("", 0) >= opset else []


def _narrowed(model: ir.Model, dtype: type) -> list[Quantized]:
    done: list[Quantized] = []
    names = Names(model)
    for graph in model_graphs(model):
        known: dict[ir.Value, tuple[ir.Value, float]] = {}
        for node in list(graph):
            for place in _places(node):
                weight = node.inputs[place]
                plain = _plain(weight)
                made = None if plain is None else _representable(plain, dtype)
                if weight is None or plain is None or made is None:
                    continue
                if weight not in known:
                    ratio = decibels(plain, made.astype(np.float32))
                    known[weight] = _behind_a_cast(node, weight, made, names), ratio
                node.replace_input_with(place, known[weight][0])
                done.append(Quantized(node.name or node.op_type, plain.size, known[weight][1]))
    return done


def _places(node: ir.Node) -> tuple[int, ...]:
    """Inputs that may be weights."""
    if is_kept_wide(node):
        return ()
    if is_op(node, "MatMul", "Gemm"):
        return 0, 1
    return (1,) if is_op(node, "Conv", "ConvTranspose") else ()


def _plain(weight: ir.Value | None) -> Array | None:
    tensor = tensor_of(weight)
    if tensor is None or tensor.dtype != ir.DataType.FLOAT or len(tensor.shape) < 2 or tensor.size < _LEAST:
        return None
    return np.asarray(tensor.numpy())


def _representable(plain: Array, dtype: type) -> Array | None:
    """The weights, rounded to nearest even; None where a number becomes none."""
    with np.errstate(over="ignore"):
        made: Array = plain.astype(np.dtype(dtype))
    return made if np.isfinite(made.astype(np.float32)).all() else None


def _behind_a_cast(before: ir.Node, weight: ir.Value, made: Array, names: Names) -> ir.Value:
    graph = before.graph
    assert graph is not None
    held = add_constant(graph, made, names)
    to = ir.AttrInt64("to", ir.DataType.FLOAT)
    cast = insert_node(before, "Cast", [held], weight, names, attributes=(to,))
    mark_narrowed(cast)
    return cast.outputs[0]
