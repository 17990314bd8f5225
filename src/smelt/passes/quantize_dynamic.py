"""Float32 products -> products of 8-bit activations and 8-bit weights, without data.

Input: a float32 model. Output: MatMul and Gemm with constant weights as DynamicQuantizeLinear, MatMulInteger, Cast, Mul
and, for a bias, Add: the form of onnxruntime.quantization.quantize_dynamic, which the 8-bit kernels compute as one
layer. Invariant: weights are int8 with one scale for each column and no zero points; products of one tensor share its
quantization; small matrices and those with NaN or infinities stay as they are; results keep their names and shapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx_ir as ir

from smelt.ir.narrowed import is_kept_wide
from smelt.ir.walk import model_graphs
from smelt.passes.block_quantized import Product, product_of, take_over
from smelt.passes.quantize_weights import Quantized, decibels, plain_matrix
from smelt.passes.rewriter.surgery import Array, Names, add_constant, drop_node

OLDEST_OPSET: Final = 11  # DynamicQuantizeLinear
_MOST: Final = 127


@dataclass(frozen=True)
class _Rows:
    """A quantized tensor with its scale and zero point."""

    numbers: ir.Value
    scale: ir.Value
    zero: ir.Value


@dataclass(frozen=True)
class _Weights:
    """int8 (K, N) and a scale for each column."""

    numbers: ir.Value
    scales: ir.Value
    sqnr: float


def quantize_dynamic(model: ir.Model) -> list[Quantized]:
    """Quantize all products in place."""
    done: list[Quantized] = []
    names = Names(model)
    for graph in model_graphs(model):
        if model.graph.opset_imports.get("", 0) < OLDEST_OPSET:
            break
        rows: dict[ir.Value, _Rows] = {}
        held: dict[tuple[ir.Value, bool], _Weights] = {}
        for node in list(graph):
            product = None if is_kept_wide(node) else product_of(node)
            matrix = None if product is None else plain_matrix(product)
            if product is None or matrix is None:
                continue
            key = product.right, product.transposed
            if key not in held:
                held[key] = _weights(graph, matrix, names)
            if product.left not in rows:
                rows[product.left] = _quantized_rows(node, product.left, names)
            done.append(Quantized(node.name or node.op_type, matrix.size, held[key].sqnr))
            _replace(product, rows[product.left], held[key], names)
    return done


def quantize_columns(matrix: Array) -> tuple[Array, Array]:
    """int8 numbers of a matrix (N, K), and the scale of each of its N columns: 1 for a column of zeros."""
    largest = np.abs(matrix).max(axis=1).astype(np.float32)
    scales = largest / np.float32(_MOST)
    scales = np.where(scales > 0, scales, np.float32(1)).astype(np.float32)
    numbers = np.clip(np.rint(matrix / scales[:, None]), -_MOST, _MOST).astype(np.int8)
    return numbers, scales


def _weights(graph: ir.Graph, matrix: Array, names: Names) -> _Weights:
    numbers, scales = quantize_columns(matrix)
    ratio = decibels(matrix, numbers * scales[:, None])
    return _Weights(add_constant(graph, numbers.T, names), add_constant(graph, scales, names), ratio)


def _quantized_rows(before: ir.Node, left: ir.Value, names: Names) -> _Rows:
    types = ir.DataType.UINT8, ir.DataType.FLOAT, ir.DataType.UINT8
    shapes = left.shape, ir.Shape([]), ir.Shape([])
    made = [_value(names, dtype, shape) for dtype, shape in zip(types, shapes, strict=True)]
    _insert(before, "DynamicQuantizeLinear", [left], made, names)
    return _Rows(*made)


def _replace(product: Product, rows: _Rows, weights: _Weights, names: Names) -> None:
    old = product.node
    graph, output = old.graph, old.outputs[0]
    assert graph is not None
    sums = _value(names, ir.DataType.INT32, output.shape)
    wide, scaled = (_value(names, ir.DataType.FLOAT, output.shape) for _ in range(2))
    scale = _value(names, ir.DataType.FLOAT, weights.scales.shape)
    _insert(old, "Mul", [rows.scale, weights.scales], [scale], names)
    _insert(old, "MatMulInteger", [rows.numbers, weights.numbers, rows.zero], [sums], names, old.name)
    _insert(old, "Cast", [sums], [wide], names, attributes=(ir.AttrInt64("to", ir.DataType.FLOAT),))
    _insert(old, "Mul", [wide, scale], [scaled], names)
    made = scaled
    if product.bias is not None:
        made = _value(names, ir.DataType.FLOAT, output.shape)
        _insert(old, "Add", [scaled, product.bias], [made], names)
    take_over(graph, output, made)
    drop_node(old)


def _value(names: Names, dtype: ir.DataType, shape: ir.Shape | None) -> ir.Value:
    return ir.Value(name=names.fresh("v"), type=ir.TensorType(dtype), shape=shape)


def _insert(
    before: ir.Node, op_type: str, inputs: list[ir.Value], outputs: list[ir.Value], names: Names,
    name: str | None = None, attributes: tuple[ir.Attr, ...] = (),
) -> None:  # fmt: skip
    node = ir.Node("", op_type, inputs, attributes, outputs=outputs, name=name or names.fresh(op_type))
    node.metadata_props.update(before.metadata_props)
    assert before.graph is not None
    before.graph.insert_before(before, node)
