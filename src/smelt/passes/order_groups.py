"""MatMulNBits whose g_idx says of which block each k is -> MatMulNBits over k in the order of their blocks.

Input: any model. Output: nodes without g_idx: what is in order already loses it, else the left operand is gathered and
the weights are packed again. Invariant: every group is as large as its block; others keep their g_idx. Each product has
the same factors; only the order of the sum differs.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_ir as ir

from smelt.ir.kernel.bit_fields import pack_bits, unpack_bits
from smelt.ir.walk import model_graphs
from smelt.passes.block_quantized import MICROSOFT
from smelt.passes.rewriter.outcome import Outcome
from smelt.passes.rewriter.surgery import Array, Names, add_constant, input_at, int_attribute, is_op, tensor_of


class OrderGroups:
    """Put the k of MatMulNBits in the order of their groups, where g_idx has another."""

    sets = ("default",)

    def __call__(self, model: ir.Model) -> Outcome:
        changes: Counter[str] = Counter()
        names = Names(model)
        for graph in model_graphs(model):
            for node in list(graph):
                if is_op(node, "MatMulNBits", domain=MICROSOFT) and input_at(node, 4) is not None:
                    changes["products with g_idx put in order"] += _ordered(graph, node, names)
        return Outcome(changes)


def _ordered(graph: ir.Graph, node: ir.Node, names: Names) -> bool:
    weights, index = tensor_of(input_at(node, 1)), tensor_of(input_at(node, 4))
    depth, columns = int_attribute(node, "K", 0), int_attribute(node, "N", 0)
    bits, block = int_attribute(node, "bits", 4), int_attribute(node, "block_size", 0)
    if weights is None or index is None or block < 1 or depth < 1 or bits not in (2, 4, 8):
        return False
    order = _order(np.asarray(index.numpy()).reshape(-1), depth, block)
    blocks = -(-depth // block)
    if order is None or weights.size != columns * blocks * (block * bits // 8):
        return False
    if (np.diff(order) != 1).any():
        plain = np.array(unpack_bits(np.asarray(weights.numpy()).reshape(columns, -1), bits))
        plain[:, :depth] = plain[:, order]
        packed = pack_bits(plain.reshape(columns, blocks, block), bits)
        node.replace_input_with(1, add_constant(graph, packed, names))
        node.replace_input_with(0, _gathered(graph, node, order, names))
    node.replace_input_with(4, None)
    return True


def _order(index: Array, depth: int, block: int) -> Array | None:
    """The k of the first block, of the second ...; None where a group is not as large as its block."""
    blocks = -(-depth // block)
    if index.size != depth or index.min() < 0 or index.max() >= blocks:
        return None
    sizes = np.full(blocks, block)
    sizes[-1] = depth - (blocks - 1) * block
    fits = (np.bincount(index, minlength=blocks) == sizes).all()
    return np.argsort(index, kind="stable").astype(np.int64) if fits else None


def _gathered(graph: ir.Graph, node: ir.Node, order: Array, names: Names) -> ir.Value:
    left = node.inputs[0]
    assert left is not None
    made = ir.Value(name=names.fresh("v"), type=left.type, shape=left.shape)
    axis = [ir.AttrInt64("axis", -1)]
    gather = ir.Node("", "Gather", [left, add_constant(graph, order, names)], axis, outputs=[made])
    gather.name = names.fresh("Gather")
    graph.insert_before(node, gather)
    return made
