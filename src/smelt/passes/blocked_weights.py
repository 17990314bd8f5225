"""Products with weights behind DequantizeLinear -> MatMulNBits.

Input: a model whose shapes are inferred. Output: `MatMul(x, DequantizeLinear(w))` with constant w of 4 or 8 bits that
is quantized in blocks along K, or with scales of whole columns, becomes one node, also behind a Transpose and as Gemm.
Invariant: the dequantized weights are the same numbers; x is no quantized tensor itself (an integer product is better),
and float32.

Otherwise the weights are made float32 at every call.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np
import onnx_ir as ir

from smelt.ir.walk import model_graphs
from smelt.passes.block_quantized import BLOCKS, Blocks, Product, product_of, replace_product
from smelt.passes.rewriter.outcome import Outcome
from smelt.passes.rewriter.surgery import Array, Names, input_at, int_attribute, is_op, tensor_of

_T: Final = ir.DataType
_TYPES: Final = {_T.INT4: (4, 8), _T.UINT4: (4, 0), _T.INT8: (8, 128), _T.UINT8: (8, 0)}  # bits, what makes it unsigned
_MOVEMENTS: Final = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Identity", "Expand", "Gather")
_WHOLE: Final = 128  # the size of blocks where one scale is for whole columns


class BlockedWeights:
    """Multiply by quantized weights as they are, instead of dequantizing them at every call."""

    sets = ("default",)

    def __call__(self, model: ir.Model) -> Outcome:
        changes: Counter[str] = Counter()
        names = Names(model)
        for graph in model_graphs(model):
            for node in list(graph):
                product = product_of(node)
                blocks = None if product is None else _blocks(product)
                if product is not None and blocks is not None:
                    replace_product(product, blocks, names)
                    changes["quantized weights multiplied as they are"] += 1
        return Outcome(changes)


def _blocks(product: Product) -> Blocks | None:
    dequantize = product.right.producer()
    if dequantize is None or not is_op(dequantize, "DequantizeLinear") or _restored(product.left):
        return None
    weights, scales = tensor_of(input_at(dequantize, 0)), tensor_of(input_at(dequantize, 1))
    if weights is None or scales is None or weights.dtype not in _TYPES or scales.dtype != _T.FLOAT:
        return None
    if len(weights.shape) != 2:
        return None
    shape = tuple(int(size) for size in weights.shape.numpy())
    axis, along = int_attribute(dequantize, "axis", 1) % 2, 1 if product.transposed else 0
    size = int_attribute(dequantize, "block_size", 0)
    columns = shape[1 - along]
    if product.bias is not None and product.bias.shape != ir.Shape([columns]):
        return None
    bits, offset = _TYPES[weights.dtype]
    zeros = tensor_of(input_at(dequantize, 2))
    if zeros is None and input_at(dequantize, 2) is not None:
        return None
    spread = _Spread(shape[along], columns, along, axis, size)
    wide = spread(np.asarray(scales.numpy()))
    zero = np.zeros_like(scales.numpy(), np.int16) if zeros is None else np.asarray(zeros.numpy()).astype(np.int16)
    moved = spread(zero + np.int16(offset))
    if wide is None or moved is None:
        return None
    plain = np.asarray(weights.numpy()).astype(np.int16) + np.int16(offset)
    numbers = _by_columns(plain.astype(np.uint8), along, spread.block)
    usual = bool((moved == 1 << (bits - 1)).all())
    return Blocks(numbers, wide, None if usual else moved.astype(np.uint8), bits, shape[along])


def _restored(value: ir.Value | None) -> bool:
    """Whether these are bytes dequantized, perhaps moved: then the product is one of bytes."""
    node = None if value is None else value.producer()
    while node is not None and node.op_type in _MOVEMENTS:
        value = input_at(node, 0)
        node = None if value is None else value.producer()
    return is_op(node, "DequantizeLinear")


class _Spread:
    """Scales or zero points (N, blocks) from those of a DequantizeLinear: of blocks, of columns, or one for all."""

    def __init__(self, depth: int, columns: int, along: int, axis: int, size: int) -> None:
        self.depth, self.columns, self.along, self.axis, self.size = depth, columns, along, axis, size
        fitting = [block for block in BLOCKS if size and size % block == 0]
        self.block = max(fitting, default=0) if size else _WHOLE

    def __call__(self, given: Array) -> Array | None:
        blocks = -(-self.depth // self.block) if self.block else 0
        if given.size == 1 and not self.size:
            return np.full((self.columns, blocks), given.reshape(-1)[0], given.dtype)
        if not self.size:
            by_column = given.ndim == 1 and self.axis != self.along and given.size == self.columns
            return np.repeat(given[:, None], blocks, axis=1) if by_column else None
        wanted = -(-self.depth // self.size)
        if not self.block or given.ndim != 2 or self.axis != self.along:
            return None
        matrix = given if self.along else given.T
        if matrix.shape != (self.columns, wanted):
            return None
        return np.repeat(matrix, self.size // self.block, axis=1)[:, :blocks]


def _by_columns(plain: Array, along: int, block: int) -> Array:
    """(N, blocks, block), filled up with zeros."""
    matrix = plain if along else plain.T
    filled = np.pad(matrix, ((0, 0), (0, -matrix.shape[1] % block)))
    return np.ascontiguousarray(filled).reshape(len(matrix), -1, block)
