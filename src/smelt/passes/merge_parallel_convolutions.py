"""Convolutions of one image whose results are added -> one convolution.

Input: a float32 model whose shapes are inferred. Output: of `Add(Conv(x), Conv(x))`, where one kernel's taps lie among
the other's, the larger one is left, with the sum of the weights. Batch normalization of x, beside a convolution that
keeps the image's size, is its middle tap; so is x itself beside a depthwise one. Networks that are trained with
branches (RepVGG, MobileOne) are exported so. Invariant: nothing else uses the results; weights are added in float64,
rounded once, and finite.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from smelt.ir.walk import model_graphs
from smelt.passes.fold_channel_affine import MOST, Affine, normalization_of, set_bias
from smelt.passes.rewriter.outcome import Outcome
from smelt.passes.rewriter.surgery import (
    Array,
    Names,
    add_constant,
    array_of,
    drop_node,
    input_at,
    int_attribute,
    ints_attribute,
    is_op,
    only_user,
    replace_value,
)  # fmt: skip


@dataclass(frozen=True)
class _Branch:
    """A convolution of `image` by constants, which `node` computes; `weight` and `bias` are in float64."""

    node: ir.Node | None
    image: ir.Value | None
    weight: Array
    bias: Array
    group: int
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]

    @property
    def kernel(self) -> tuple[int, ...]:
        return tuple(int(size) for size in self.weight.shape[2:])

    @property
    def grows(self) -> tuple[int, ...]:
        """By how much the padded image exceeds what the first window needs, less the image itself: two convolutions of
        equal strides for which it is equal have results of equal sizes, whatever the image."""
        rank = len(self.kernel)
        ends = [self.pads[axis] + self.pads[rank + axis] for axis in range(rank)]
        return tuple(p - (k - 1) * d for p, k, d in zip(ends, self.kernel, self.dilations, strict=True))


class MergeParallelConvolutions:
    """Merge convolutions of one image that are added into one."""

    sets = ("default",)

    def __call__(self, model: ir.Model) -> Outcome:
        changes: Counter[str] = Counter()
        names = Names(model)
        for graph in model_graphs(model):
            for node in list(graph):
                if node.graph is graph and is_op(node, "Add") and len(node.inputs) == 2 and _merge(node, graph, names):
                    changes["convolution merged with one beside it"] += 1
        return Outcome(changes)


def _merge(add: ir.Node, graph: ir.Graph, names: Names) -> bool:
    """Whether the sum is now a convolution's own result."""
    branches = [_branch(value, graph) for value in add.inputs]
    for large, other in ((0, 1), (1, 0)):
        kept = branches[large]
        if kept is None or kept.node is None:
            continue
        added = branches[other] or _identity(add.inputs[other], kept, graph)
        merged = None if added is None or added.node is kept.node else _sum(kept, added)
        if added is not None and merged is not None and replace_value(add.outputs[0], kept.node.outputs[0]):
            kept.node.replace_input_with(1, add_constant(graph, merged.weight.astype(np.float32), names))
            set_bias(kept.node, add_constant(graph, merged.bias.astype(np.float32), names))
            drop_node(add)
            if added.node is not None:
                drop_node(added.node)
            return True
    return False


def _branch(value: ir.Value | None, graph: ir.Graph) -> _Branch | None:
    node = value.producer() if value is not None else None
    if value is None or node is None or not is_op(node, "Conv") or node.graph is not graph or only_user(value) is None:
        return None
    weight = array_of(input_at(node, 1), MOST)
    if weight is None or weight.dtype != np.float32 or weight.ndim < 3 or not _is_explicit(node):
        return None
    given = input_at(node, 2)
    bias = np.full(weight.shape[0], -0.0, np.float32) if given is None else array_of(given, weight.shape[0])
    if bias is None or bias.shape != weight.shape[:1]:
        return None
    rank = weight.ndim - 2
    strides, dilations = (ints_attribute(node, name) or (1,) * rank for name in ("strides", "dilations"))
    pads = ints_attribute(node, "pads") or (0,) * (2 * rank)
    wide = weight.astype(np.float64), bias.astype(np.float64)
    return _Branch(node, node.inputs[0], *wide, int_attribute(node, "group", 1), strides, dilations, pads)


def _is_explicit(node: ir.Node) -> bool:
    """Padding is stated in numbers."""
    padding = node.attributes.get("auto_pad")
    return padding is None or padding.as_string() == "NOTSET"


def _identity(value: ir.Value | None, beside: _Branch, graph: ir.Graph) -> _Branch | None:
    """The image, or its batch normalization, as a convolution of one tap in the groups of the one beside it."""
    columns, each = (int(size) for size in beside.weight.shape[:2])
    if value is None or beside.image is None or each * beside.group != columns:
        return None
    node, affine = None, None
    if value is beside.image and each == 1:  # more channels may be computed by Winograd, whose error it would have
        affine = Affine(np.ones(columns), np.full(columns, -0.0))
    elif value is not beside.image and (node := value.producer()) is not None and only_user(value) is not None:
        here = node.graph is graph and is_op(node, "BatchNormalization")
        affine = normalization_of(node, beside.image, columns) if here else None
    if affine is None:
        return None
    weight, ones = np.zeros((columns, each)), (1,) * len(beside.kernel)
    weight[np.arange(columns), np.arange(columns) % each] = affine.scale
    taps = weight.reshape(columns, each, *ones)
    return _Branch(node, beside.image, taps, affine.shift, beside.group, ones, ones, (0,) * (2 * len(ones)))


def _sum(kept: _Branch, added: _Branch) -> _Branch | None:
    """Both in the first one's kernel; None where that has not all of the second's taps."""
    first = _place(kept, added)
    if first is None:
        return None
    weight = kept.weight.copy()
    taps = tuple(slice(start, start + size) for start, size in zip(first, added.kernel, strict=True))
    with np.errstate(all="ignore"):
        weight[:, :, *taps] += added.weight
        bias = kept.bias + added.bias
        finite = np.isfinite(weight.astype(np.float32)).all() and np.isfinite(bias.astype(np.float32)).all()
    return replace(kept, weight=weight, bias=bias) if finite else None


def _place(kept: _Branch, added: _Branch) -> tuple[int, ...] | None:
    """Where the first tap of `added` lies among those of `kept`."""
    alike = kept.image is added.image and kept.group == added.group and kept.strides == added.strides
    if not alike or kept.weight.shape[:2] != added.weight.shape[:2] or kept.grows != added.grows:
        return None
    found: list[int] = []
    for axis, (size, dilation) in enumerate(zip(kept.kernel, kept.dilations, strict=True)):
        if added.kernel[axis] > 1 and added.dilations[axis] != dilation:
            return None
        start, rest = divmod(kept.pads[axis] - added.pads[axis], dilation)
        if rest or start < 0 or start + added.kernel[axis] > size:
            return None
        found.append(start)
    return tuple(found)
