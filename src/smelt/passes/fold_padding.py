"""What pads an image with nothing -> the padding of the window that reads it.

Input: a model with constants as initializers. Output: a Conv behind a Pad with zeros, and a MaxPool behind one with
-inf, pad by themselves. Invariant: only axes of the image are padded, by constants that are not negative; weights are
finite, so that zeros outside of the image add nothing; no window of a pool sees padding alone; a Pad that others use
too stays for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
import onnx_ir as ir

from smelt.ir.walk import model_graphs
from smelt.passes.rewriter.outcome import Outcome
from smelt.passes.rewriter.surgery import (
    array_of,
    drop_node,
    input_at,
    int_attribute,
    ints_attribute,
    is_op,
    scalar_of,
)

_MOST: Final = 1 << 26  # elements of weights that are looked at
_BY_INPUTS: Final = 11  # the opset in which pads and the value became inputs
_NEUTRAL: Final = {"Conv": 0.0, "MaxPool": -np.inf}


class FoldPadding:
    """Fold a Pad of zeros (of -inf) into the convolutions (the maximum pools) behind it."""

    sets = ("default",)

    def __call__(self, model: ir.Model) -> Outcome:
        changes: Counter[str] = Counter()
        by_inputs = model.opset_imports.get("", 0) >= _BY_INPUTS
        for graph in model_graphs(model):
            for node in list(graph):
                if not is_op(node, "Pad"):
                    continue
                pads, value = _pads(node, by_inputs), _value(node, by_inputs)
                if pads is None:
                    continue
                for user in list(dict.fromkeys(node.outputs[0].consumers())):
                    if _fold(node, user, pads, value):
                        changes[f"Pad folded into a {user.op_type}"] += 1
                if not node.outputs[0].consumers() and not node.outputs[0].is_graph_output():
                    drop_node(node)
        return Outcome(changes)


def _pads(node: ir.Node, by_inputs: bool) -> list[int] | None:
    """Of the axes of an image, all first ones before all last ones."""
    mode = node.attributes.get("mode")
    if mode is not None and (mode.is_ref() or mode.as_string() != "constant"):
        return None
    given = array_of(input_at(node, 1), 64) if by_inputs else ints_attribute(node, "pads")
    if given is None or len(given) % 2:
        return None
    half = len(given) // 2
    axes = _axes(node, half)
    if axes is None or len(axes) != half:
        return None
    rank = _rank(node) or (half if input_at(node, 3) is None else 0)
    if rank < 3 or any(not -rank <= axis < rank for axis in axes):
        return None
    before, after = [0] * rank, [0] * rank
    for place, axis in enumerate(axes):
        before[axis], after[axis] = int(given[place]), int(given[half + place])
    if min(*before, *after) < 0 or any((*before[:2], *after[:2])):
        return None
    return [*before[2:], *after[2:]]


def _axes(node: ir.Node, count: int) -> Sequence[int] | None:
    value = input_at(node, 3)
    if value is None:
        return range(count)
    array = array_of(value, 64)
    return None if array is None else [int(axis) for axis in array.reshape(-1)]


def _rank(node: ir.Node) -> int:
    """0: not known."""
    image = input_at(node, 0)
    return len(image.shape) if image is not None and image.shape is not None else 0


def _value(node: ir.Node, by_inputs: bool) -> float | None:
    """What is put around the image."""
    if by_inputs:
        value = input_at(node, 2)
        return 0.0 if value is None else scalar_of(value)
    attribute = node.attributes.get("value")
    return 0.0 if attribute is None else None if attribute.is_ref() else attribute.as_float()


def _fold(node: ir.Node, user: ir.Node, pads: Sequence[int], value: float | None) -> bool:
    """Whether the window pads by itself now."""
    if not is_op(user, *_NEUTRAL) or value is None or value != _NEUTRAL[user.op_type]:
        return False
    if user.inputs[0] is not node.outputs[0] or node.outputs[0] in user.inputs[1:]:
        return False
    own = _own_pads(user, len(pads))
    if own is None:
        return False
    together = [a + b for a, b in zip(own, pads, strict=True)]
    if not (_sums_stay(user) if user.op_type == "Conv" else _sees_image(user, together)):
        return False
    user.replace_input_with(0, node.inputs[0])
    user.attributes.pop("auto_pad", None)
    user.attributes["pads"] = ir.AttrInt64s("pads", together)
    return True


def _own_pads(user: ir.Node, count: int) -> tuple[int, ...] | None:
    automatic = user.attributes.get("auto_pad")
    kind = "NOTSET" if automatic is None else "" if automatic.is_ref() else automatic.as_string()
    if kind == "VALID":
        return (0,) * count
    own = ints_attribute(user, "pads") or (0,) * count
    return own if kind == "NOTSET" and len(own) == count and min(own) >= 0 else None


def _sums_stay(user: ir.Node) -> bool:
    """Zeros times weights are zeros."""
    weight = array_of(input_at(user, 1), _MOST)
    return weight is not None and weight.dtype.kind == "f" and bool(np.isfinite(weight).all())


def _sees_image(user: ir.Node, pads: Sequence[int]) -> bool:
    """Whether each window has a pixel of the image, and places are not counted."""
    kernel = ints_attribute(user, "kernel_shape") or ()
    plain = not int_attribute(user, "ceil_mode", 0) and sum(bool(o.name) for o in user.outputs) == 1
    dilated = any(d != 1 for d in ints_attribute(user, "dilations") or ())
    return plain and not dilated and all(pad < size for pad, size in zip(pads, (*kernel, *kernel), strict=True))
