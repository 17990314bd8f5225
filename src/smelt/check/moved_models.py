"""The same network with its constants moved by a few units in their last place, or with float32 activations.

Input: a model file. Output: another file, for stock ONNX Runtime to run; the caller removes it. Invariant: only numbers
change, and none that decides a shape: scales of quantizing nodes, or weights and biases of products. What stock answers
with them is as right as its answer without: a weight is known to half a unit of its last place. With float32
activations it answers what the weights mean.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import onnx_ir as ir

from smelt.check.contract import PRODUCTS
from smelt.check.quantized import has_8bit_activations, quantizes
from smelt.check.references import moved
from smelt.ir.proto import load_file, to_proto
from smelt.ir.walk import model_nodes

Array = np.ndarray[Any, Any]

FLOAT32_ACTIVATIONS: Final = 1  # the accuracy level
_MOVED_ULPS: Final = 4
_MAX_SCALES: Final = 1 << 16
_MOST_WEIGHT_BYTES: Final = 256 << 20  # of copies that are held and written at once


def with_moved_scales(path: Path, seed: int) -> Path:
    """Every constant scale moved by up to four units."""
    model = load_file(path)
    rng = np.random.default_rng([13, seed])
    for value in _scales(model):
        array = _array(value)
        ulps = np.multiply(cast(Array, rng.integers(1, _MOVED_ULPS + 1, array.shape)), rng.choice([-1, 1], array.shape))
        _set(value, (array * (1 + ulps * np.finfo(array.dtype).eps)).astype(array.dtype))
    return write_beside(model, path)


def with_moved_weights(path: Path, seed: int) -> Path | None:
    """Every constant operand of a product moved by one unit; None where there is none, or too much of it."""
    model = load_file(path)
    weights = _weights(model)
    if not weights or sum(one.const_value.nbytes for one in weights if one.const_value) > _MOST_WEIGHT_BYTES:
        return None
    for place, value in enumerate(weights):
        _set(value, moved([_array(value)], seed + 31 * place)[0])
    return write_beside(model, path)


def with_float_activations(path: Path) -> Path:
    """Every product that may take its activations in 8 bits takes them in float32."""
    model = load_file(path)
    for node in narrow_products(model):
        node.attributes["accuracy_level"] = ir.AttrInt64("accuracy_level", FLOAT32_ACTIVATIONS)
    return write_beside(model, path)


def narrow_products(model: ir.Model) -> list[ir.Node]:
    """Those whose activations may be quantized to 8 bits."""
    return [node for node in model_nodes(model) if has_8bit_activations(node)]


def _scales(model: ir.Model) -> list[ir.Value]:
    """Constants of few floats that a quantizing node reads: scales, not weights."""
    nodes = (node for node in model_nodes(model) if node.op_type == "DequantizeLinear" or quantizes([node.op_type]))
    found = _float_constants(value for node in nodes for value in node.inputs[1:])
    return [value for value in found if _array(value).size < _MAX_SCALES]


def _weights(model: ir.Model) -> list[ir.Value]:
    return _float_constants(v for node in model_nodes(model) if node.op_type in PRODUCTS for v in node.inputs)


def _float_constants(values: Iterable[ir.Value | None]) -> list[ir.Value]:
    """Each once; initializers, and results of Constant nodes."""
    once = dict.fromkeys(value for value in values if value is not None)
    known = ((value, ir.convenience.get_const_tensor(value)) for value in once)
    return [value for value, tensor in known if tensor is not None and tensor.numpy().dtype.kind == "f"]


def _array(value: ir.Value) -> Array:
    tensor = ir.convenience.get_const_tensor(value)
    assert tensor is not None
    return np.asarray(tensor.numpy())


def _set(value: ir.Value, array: Array) -> None:
    tensor = ir.tensor(array, name=value.name)
    made_by = value.producer()
    if made_by is None:
        value.const_value = tensor
    else:  # a Constant, whichever of its attributes held the number
        made_by.attributes.clear()
        made_by.attributes["value"] = ir.AttrTensor("value", tensor)


def write_beside(model: ir.Model, path: Path, prefix: str = "smelt-moved-") -> Path:
    """Beside the original only where weights lie in files there: its folder may be the user's."""
    tensors = (value.const_value for value in model.graph.initializers.values())
    outside = any(isinstance(tensor, ir.ExternalTensor) for tensor in tensors)
    handle, name = tempfile.mkstemp(prefix=prefix, suffix=".onnx", dir=path.parent if outside else None)
    with os.fdopen(handle, "wb") as file:
        file.write(to_proto(model).SerializeToString())
    return Path(name)
