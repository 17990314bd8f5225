"""Transposed convolutions of overlapping windows -> one convolution for each phase of the stride, interleaved.

Input: a float32 model with constants as initializers. Output: a ConvTranspose of stride s whose kernel is larger than s
is s (of a line) or s * s (of an image) convolutions of stride 1, by the taps that meet one phase of the result, a
Concat of channels, a depth-to-space permutation and a Slice of what padding cuts off; a ReLU behind it comes before.
Invariant: every product of a weight and a pixel is computed once, and none with a zero in between; sums have the same
terms; the node's result has no other name, type or size than before.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx_ir as ir

from smelt.ir.walk import model_graphs
from smelt.passes.rewriter.outcome import Outcome
from smelt.passes.rewriter.surgery import (
    Array,
    Names,
    add_constant,
    array_of,
    drop_node,
    input_at,
    insert_node,
    int_attribute,
    ints_attribute,
    is_op,
    only_user,
    replace_value,
)  # fmt: skip

_MOST: Final = 1 << 26  # elements of a weight that is cut into phases
_FEWEST_CHANNELS: Final = 8  # of fewer, a phase has too little to multiply
_MOST_PHASES: Final = 16
_END: Final = np.iinfo(np.int64).max
_SLICE_BY_INPUTS: Final = 10  # the opset in which the bounds of Slice became inputs
_UNSQUEEZE_BY_INPUTS: Final = 13


@dataclass(frozen=True)
class _Transposed:
    """One that can be split: `weight` is [channels, columns, *kernel]; `crop` is what the last phases give too much."""

    weight: Array
    strides: tuple[int, ...]
    begins: tuple[int, ...]
    padding: tuple[int, ...]  # behind the image, of every phase
    crop: tuple[int, ...]


class SplitTransposedConvolutions:
    """Split transposed convolutions into a convolution for each phase of their stride."""

    sets = ("default",)

    def __call__(self, model: ir.Model) -> Outcome:
        changes: Counter[str] = Counter()
        names, opset = Names(model), model.opset_imports.get("", 0)
        for graph in model_graphs(model):
            for node in list(graph):
                found = _transposed(node) if is_op(node, "ConvTranspose") else None
                if found is not None and _split(node, found, graph, names, opset):
                    changes["transposed convolution split into phases"] += 1
        return Outcome(changes)


def _transposed(node: ir.Node) -> _Transposed | None:
    weight = array_of(input_at(node, 1), _MOST)
    if weight is None or weight.dtype != np.float32 or weight.ndim not in (3, 4) or min(weight.shape) == 0:
        return None
    kernel = weight.shape[2:]
    axes = len(kernel)
    strides = ints_attribute(node, "strides") or (1,) * axes
    pads = ints_attribute(node, "pads") or (0,) * (2 * axes)
    extra = ints_attribute(node, "output_padding") or (0,) * axes
    if not _is_plain(node, axes) or len(set(strides)) > 1 or min(pads) < 0 or min(weight.shape[:2]) < _FEWEST_CHANNELS:
        return None
    if not 1 < np.prod(strides) <= _MOST_PHASES or not all(k > s for k, s in zip(kernel, strides, strict=True)):
        return None
    ends = [k - pads[axes + axis] + extra[axis] for axis, k in enumerate(kernel)]
    padding = tuple(-(-end // s) - 1 for end, s in zip(ends, strides, strict=True))
    crop = tuple(s * (more + 1) - end for s, more, end in zip(strides, padding, ends, strict=True))
    return None if min(padding) < 0 else _Transposed(weight, strides, tuple(pads[:axes]), padding, crop)


def _is_plain(node: ir.Node, axes: int) -> bool:
    """One group, no dilation, and sizes that follow from numbers."""
    padding = node.attributes.get("auto_pad")
    explicit = padding is None or padding.as_string() == "NOTSET"
    dilated = (ints_attribute(node, "dilations") or (1,) * axes) != (1,) * axes
    one_group = int_attribute(node, "group", 1) == 1
    return explicit and not dilated and one_group and "output_shape" not in node.attributes


def _split(node: ir.Node, found: _Transposed, graph: ir.Graph, names: Names, opset: int) -> bool:
    result, last = node.outputs[0], node
    user = only_user(result)
    if user is not None and is_op(user, "Relu") and user.graph is graph:
        result, last = user.outputs[0], user
    phases = [
        _phase(node, found, phase, last is not node, graph, names)
        for phase in itertools.product(*(range(s) for s in found.strides))
    ]
    whole = _line(node, phases, graph, names, opset) if len(found.strides) == 1 else _image(node, phases, found, names)
    made = _sliced(node, whole, found, graph, names, opset)
    made.type = result.type  # a declared shape is a hint that the file may have wrong
    if not replace_value(result, made):
        return False
    for one in (last, node) if last is not node else (node,):
        drop_node(one)
    return True


def _phase(
    node: ir.Node, found: _Transposed, phase: Sequence[int], rectified: bool, graph: ir.Graph, names: Names
) -> ir.Value:
    """What lies at `phase` of each stride: taps `phase + j * stride`, the last one first."""
    axes = len(phase)
    cut = found.weight[:, :, *(slice(first, None, s) for first, s in zip(phase, found.strides, strict=True))]
    taps = np.flip(cut, axis=tuple(range(2, 2 + axes))).swapaxes(0, 1)
    pads = [*(size - 1 for size in taps.shape[2:]), *found.padding]
    image, bias = node.inputs[0], input_at(node, 2)
    assert image is not None
    operands = [image, add_constant(graph, taps, names)] + ([] if bias is None else [bias])
    made = _insert(node, "Conv", operands, names, [ir.AttrInt64s("pads", pads)])
    return _insert(node, "Relu", [made], names) if rectified else made


def _image(node: ir.Node, phases: list[ir.Value], found: _Transposed, names: Names) -> ir.Value:
    whole = _insert(node, "Concat", phases, names, [ir.AttrInt64("axis", 1)])
    return _insert(node, "DepthToSpace", [whole], names, [ir.AttrInt64("blocksize", found.strides[0])])


def _line(node: ir.Node, phases: list[ir.Value], graph: ir.Graph, names: Names, opset: int) -> ir.Value:
    """Phases stand side by side. Sizes are multiplied, for Reshape infers none of an empty batch."""
    axis, by_input = [1], opset >= _UNSQUEEZE_BY_INPUTS
    axes = [_ints(graph, names, *axis)] if by_input else []
    attributes = [] if by_input else [ir.AttrInt64s("axes", axis)]
    rows = [_insert(node, "Unsqueeze", [phase, *axes], names, attributes) for phase in phases]
    whole = _insert(node, "Concat", rows, names, [ir.AttrInt64("axis", 1)])
    beside = _insert(node, "Transpose", [whole], names, [ir.AttrInt64s("perm", [0, 2, 3, 1])])
    sizes = _insert(node, "Shape", [phases[0]], names, dtype=ir.DataType.INT64)
    factors = _ints(graph, names, 1, 1, len(phases))
    wanted = _insert(node, "Mul", [sizes, factors], names, dtype=ir.DataType.INT64)
    return _insert(node, "Reshape", [beside, wanted], names)


def _sliced(
    node: ir.Node, whole: ir.Value, found: _Transposed, graph: ir.Graph, names: Names, opset: int
) -> ir.Value:  # fmt: skip
    if not any(found.begins) and not any(found.crop):
        return whole
    ends = [-crop if crop else _END for crop in found.crop]
    bounds = {"starts": found.begins, "ends": ends, "axes": range(2, 2 + len(ends))}
    if opset < _SLICE_BY_INPUTS:
        return _insert(node, "Slice", [whole], names, [ir.AttrInt64s(name, list(n)) for name, n in bounds.items()])
    return _insert(node, "Slice", [whole, *(_ints(graph, names, *n) for n in bounds.values())], names)


def _ints(graph: ir.Graph, names: Names, *numbers: int) -> ir.Value:
    return add_constant(graph, np.array(numbers, np.int64), names)


def _insert(
    before: ir.Node,
    op_type: str,
    inputs: list[ir.Value],
    names: Names,
    attributes: Sequence[ir.Attr] = (),
    dtype: ir.DataType = ir.DataType.FLOAT,
) -> ir.Value:
    """A result whose sizes shape inference tells."""
    like = ir.Value(type=ir.TensorType(dtype))
    return insert_node(before, op_type, inputs, like, names, attributes=tuple(attributes)).outputs[0]
