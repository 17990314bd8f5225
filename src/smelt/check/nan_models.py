"""The same network with maxima that keep NaN.

Input: a model file. Output: another file, for stock ONNX Runtime to run; the caller removes it. Invariant: where no NaN
reaches a pool or a reduction, each value is that of the model given. Stock drops NaN by its position in these ops; the
standard's reference keeps it, but a whole network in float64 takes ten times as long.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import onnx_ir as ir

from smelt.check.moved_models import write_beside
from smelt.check.special_values import DROPS_NAN
from smelt.ir.proto import load_file

_LEAST_OPSET: Final = 9  # of IsNaN and Where
_LARGEST: Final = {"ReduceMin": "ReduceMax"}


def keeping_nan(path: Path) -> Path | None:
    """None where no node drops NaN, where one also tells places, or where the ops are missing that tell what NaN is."""
    model = load_file(path)
    found = [node for node in model.graph if node.domain == "" and node.op_type in DROPS_NAN]
    places = any(len(node.outputs) > 1 for node in found)
    if not found or places or model.opset_imports.get("", 0) < _LEAST_OPSET:
        return None
    for node in found:
        _keep_nan(model.graph, node)
    return write_beside(model, path, "smelt-nan-")


def _keep_nan(graph: ir.Graph, node: ir.Node) -> None:
    """`node(x)`, and NaN wherever one of the elements that it reads is NaN."""
    source, made = node.inputs[0], node.outputs[0]
    assert source is not None and made.name is not None
    kind = source.dtype or ir.DataType.FLOAT
    zero, one, nan = (_constant(number, kind) for number in (0.0, 1.0, np.nan))
    is_nan = ir.node("IsNaN", [source])
    marks = ir.node("Where", [is_nan.outputs[0], one.outputs[0], zero.outputs[0]])
    operands = [marks.outputs[0], *node.inputs[1:]]
    largest = ir.node(_LARGEST.get(node.op_type, node.op_type), operands, attributes=dict(node.attributes))
    has_nan = ir.node("Greater", [largest.outputs[0], zero.outputs[0]])
    kept = ir.node("Where", [has_nan.outputs[0], nan.outputs[0], made])
    _take_uses(graph, made, kept)
    new = (zero, one, nan, is_nan, marks, largest, has_nan, kept)
    for place, added in enumerate(new):
        added.outputs[0].name = f"{made.name}-{place}"
    graph.insert_after(node, new)


def _constant(number: float, kind: ir.DataType) -> ir.Node:
    return ir.node("Constant", [], attributes={"value": ir.tensor(np.array(number, kind.numpy()))})


def _take_uses(graph: ir.Graph, made: ir.Value, by: ir.Node) -> None:
    for user, place in [use for use in made.uses() if use[0] is not by]:
        user.replace_input_with(place, by.outputs[0])
    for place, value in enumerate(graph.outputs):
        if value is made:
            graph.outputs[place] = by.outputs[0]
    by.outputs[0].type, by.outputs[0].shape = made.type, made.shape
