"""MatMul and Gemm with constant weights, and MatMulNBits in their place.

Input: a product whose right operand is a constant, perhaps behind a transpose. Output: `Product`, and the node that
takes its place once the weights are quantized in blocks along K. Invariant: the node has the product's result, name and
consumers; a bias of one number for each column goes into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx_ir as ir

from smelt.ir.kernel.bit_fields import pack_bits
from smelt.passes.rewriter.surgery import (
    Array,
    Names,
    add_constant,
    drop_node,
    input_at,
    int_attribute,
    is_op,
    tensor_of,
)

MICROSOFT: Final = "com.microsoft"
BLOCKS: Final = (16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Product:
    """`left` times `right`, which is (K, N), or (N, K) where `transposed`; `bias` has one number for each column."""

    node: ir.Node
    left: ir.Value
    right: ir.Value
    transposed: bool
    bias: ir.Value | None = None


@dataclass(frozen=True)
class Blocks:
    """Weights (N, blocks, size) of `bits` bits with scales and perhaps zero points, (N, blocks) each."""

    numbers: Array
    scales: Array
    zeros: Array | None
    bits: int
    depth: int


def product_of(node: ir.Node) -> Product | None:
    """None for what is no product of float32 rows and one matrix."""
    if not is_op(node, "MatMul", "Gemm") or len(node.outputs) != 1:
        return None
    left, right = input_at(node, 0), input_at(node, 1)
    if left is None or right is None or left.dtype != ir.DataType.FLOAT or left.shape is None or len(left.shape) < 2:
        return None
    transposed, bias = False, None
    if node.op_type == "Gemm":
        scaled = any(name in node.attributes and node.attributes[name].value != 1 for name in ("alpha", "beta"))
        if scaled or int_attribute(node, "transA", 0):
            return None
        transposed, bias = bool(int_attribute(node, "transB", 0)), input_at(node, 2)
        if bias is not None and (tensor_of(bias) is None or bias.shape is None or len(bias.shape) != 1):
            return None
    producer = right.producer()
    if producer is not None and is_op(producer, "Transpose") and _swaps(producer):
        inner = producer.inputs[0]
        right, transposed = (inner, not transposed) if inner is not None else (right, transposed)
    return Product(node, left, right, transposed, bias)


def _swaps(node: ir.Node) -> bool:
    order = node.attributes.get("perm")
    return order is None or tuple(order.as_ints()) == (1, 0)


def replace_product(
    product: Product, blocks: Blocks, names: Names, constants: Sequence[ir.Value] = ()
) -> list[ir.Value]:
    """Put MatMulNBits in the place of the product; gives its constants, which `constants` are where they are known."""
    old = product.node
    graph = old.graph
    assert graph is not None
    columns, _, size = blocks.numbers.shape
    fits = product.bias is None or product.bias.shape == ir.Shape([columns])
    assert fits, "a bias of another length"
    held = list(constants) or _constants(graph, blocks, names)
    zeros = held[2] if blocks.zeros is not None else None
    inputs = [product.left, held[0], held[1], zeros, None, product.bias]
    while inputs[-1] is None:
        inputs.pop()
    numbers = {"K": blocks.depth, "N": columns, "bits": blocks.bits, "block_size": size}
    output = old.outputs[0]
    made = ir.Value(name=names.fresh("v"), type=output.type, shape=output.shape)
    node = ir.Node(
        MICROSOFT, "MatMulNBits", inputs, [ir.AttrInt64(name, value) for name, value in numbers.items()],
        outputs=[made], name=old.name or names.fresh("MatMulNBits"),
    )  # fmt: skip
    node.metadata_props.update(old.metadata_props)
    graph.insert_before(old, node)
    take_over(graph, output, made)
    drop_node(old)
    graph.opset_imports.setdefault(MICROSOFT, 1)
    return held


def take_over(graph: ir.Graph, old: ir.Value, new: ir.Value) -> None:
    """Give the name and the users of `old` to `new`."""
    name = old.name
    for place, value in enumerate(graph.outputs):
        if value is old:
            graph.outputs[place] = new
    for user, place in tuple(old.uses()):
        user.replace_input_with(place, new)
    old.name, new.name = None, name


def _constants(graph: ir.Graph, blocks: Blocks, names: Names) -> list[ir.Value]:
    packed = pack_bits(blocks.numbers, blocks.bits)
    held = [add_constant(graph, packed, names), add_constant(graph, blocks.scales.astype(np.float32), names)]
    if blocks.zeros is not None:
        held.append(add_constant(graph, pack_bits(blocks.zeros, blocks.bits), names))
    return held
