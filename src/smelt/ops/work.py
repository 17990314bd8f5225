"""Flops of nodes that are no multiple of their elements: products, convolutions, attention, pools.

Input: the shapes that a node read and wrote, and its attributes. Output: flops. Invariant: a term of a sum is two; what
cannot be told from the shapes is 0. Declarations name these rules (`ops/registry.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, cast


@dataclass(frozen=True)
class Shapes:
    """One node as it ran: the shapes that it read and wrote, and its attributes where the file has them."""

    inputs: list[list[int]]
    outputs: list[list[int]]
    attributes: Mapping[str, Any]

    def size(self, place: int = 0) -> float:
        return float(prod(self.outputs[place])) if len(self.outputs) > place else 0.0


def matmul_work(node: Shapes) -> float:
    depth = node.inputs[0][-2 if node.attributes.get("transA") and len(node.inputs[0]) > 1 else -1]
    return 2 * node.size() * depth


def gemm_work(node: Shapes) -> float:
    return 2 * node.size() * float(prod(node.inputs[0])) / max(1, node.outputs[0][0])


def conv_work(node: Shapes) -> float:
    """The weight's shape has the channels of one group: groups are counted right."""
    return 2 * node.size() * float(prod(node.inputs[1][1:]))


def quantized_conv_work(node: Shapes) -> float:
    """A scale and a zero point stand between the image and the weights."""
    return 2 * node.size() * float(prod(node.inputs[3][1:]))


def conv_transpose_work(node: Shapes) -> float:
    return 2 * float(prod(node.inputs[0])) * float(prod(node.inputs[1][1:]))


def einsum_work(node: Shapes) -> float:
    """Every combination of indices is a term; an equation with an ellipsis is not counted."""
    equation = node.attributes.get("equation", b"")
    text = (equation.decode() if isinstance(equation, bytes) else str(equation)).replace(" ", "")
    terms = text.split("->")[0].split(",")
    if "." in text or len(terms) < 2 or len(terms) != len(node.inputs):
        return 0.0
    pairs = zip(terms, node.inputs, strict=True)
    sizes = {letter: size for term, shape in pairs for letter, size in zip(term, shape, strict=True)}
    return 2 * float(prod(sizes.values()))


def attention_work(node: Shapes) -> float:
    """Scores and their product with the values, over all keys, masked or not."""
    query, wide = node.inputs[0], node.outputs[0]
    if len(node.inputs) < 2 or len(query) not in (3, 4):
        return 0.0
    heads_first = len(query) == 4
    batch, rows = query[0], query[2] if heads_first else query[1]
    width = query[1] * query[3] if heads_first else query[2]
    out = wide[1] * wide[3] if len(wide) == 4 else wide[2]
    return 2.0 * batch * rows * _keys(node) * (width + out)


def _keys(node: Shapes) -> int:
    """Keys that are attended to: with the past ones, where the node hands them on."""
    if len(node.outputs) > 1 and len(node.outputs[1]) == 4:
        return node.outputs[1][2]
    key = node.inputs[1]
    return key[2] if len(key) == 4 else key[1]


def _packed_attention(node: Shapes) -> float:
    """ONNX Runtime's Attention: it projects its input to queries, keys and values first."""
    (batch, rows, depth), width = node.inputs[0], node.outputs[0][-1]
    keys = node.outputs[1][3] if len(node.outputs) > 1 and len(node.outputs[1]) == 5 else rows
    return 2.0 * batch * rows * depth * node.inputs[1][-1] + 4.0 * batch * rows * keys * width


def any_attention_work(node: Shapes) -> float:
    """Two ops have this name: one is given a weight, which is a matrix."""
    packed = len(node.inputs) > 1 and len(node.inputs[1]) == 2 and len(node.inputs[0]) == 3
    return _packed_attention(node) if packed else attention_work(node)


def pool_work(node: Shapes) -> float:
    """One flop for each tap of each window."""
    return node.size() * float(prod(cast("list[int]", node.attributes.get("kernel_shape", [1]))))


def read_work(node: Shapes) -> float:
    """One flop for each element that is read, since the output has fewer."""
    return float(prod(node.inputs[0])) if node.inputs else 0.0
