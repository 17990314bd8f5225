"""Shape arithmetic -> constants.

Input: a model with inferred shapes. Output: the model where small integer tensors computed from shapes are constants
when every element is known, and a Reshape takes a constant target with 0 (copy this dimension) or -1 where that is
provably the same. Invariant: -1 is used only when all other dimensions are positive numbers, because with a dimension
of size zero it means something else.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from smelt.ir.sizes import known_shape
from smelt.ir.walk import model_graphs
from smelt.passes.rewriter.outcome import Outcome
from smelt.passes.rewriter.surgery import (
    ONNX,
    Names,
    add_constant,
    array_of,
    input_at,
    int_attribute,
    is_op,
    tensor_of,
)

MAX_ELEMENTS = 64


@dataclass(frozen=True)
class Unknown:
    """A dimension whose size is not known but has an identity: a derived name, or an axis of a value."""

    key: object


Element = int | Unknown
Elements = tuple[Element, ...]


class SimplifyShapes:
    """Follow the elements of shape vectors through the ops that exporters compute them with."""

    def __call__(self, model: ir.Model) -> Outcome:
        changes: Counter[str] = Counter()
        names = Names(model)
        known: dict[ir.Value, Elements] = {}
        for graph in model_graphs(model):
            for node in graph:
                elements = _follow(node, known)
                if elements is not None:
                    known[node.outputs[0]] = elements
                    changes["shape value made constant"] += _make_constant(node, elements, names)
                elif is_op(node, "Reshape"):
                    changes["Reshape target made constant"] += _fix_target(node, known, names)
        return Outcome(+changes)


def _follow(node: ir.Node, known: dict[ir.Value, Elements]) -> Elements | None:
    if node.domain != ONNX or len(node.outputs) != 1 or not node.inputs:
        return None
    rule = _RULES.get(node.op_type)
    return rule(node, known) if rule is not None else None


def _elements(value: ir.Value | None, known: dict[ir.Value, Elements]) -> Elements | None:
    if value is None:
        return None
    if value in known:
        return known[value]
    array = array_of(value, MAX_ELEMENTS)
    if array is None or array.dtype != np.int64 or array.ndim > 1:
        return None
    return tuple(int(size) for size in array.reshape(-1))


def _shape(node: ir.Node, _: dict[ir.Value, Elements]) -> Elements | None:
    value = node.inputs[0]
    shape = known_shape(value) if value is not None else None
    if value is None or shape is None or shape.rank() > MAX_ELEMENTS:
        return None
    dims = tuple(dimension(value, axis) for axis in range(shape.rank()))
    return dims[int_attribute(node, "start", 0) : int_attribute(node, "end", len(dims))]


def dimension(value: ir.Value, axis: int) -> Element:
    """A dimension's size, or its identity: what it was derived to be equal to, else where it is."""
    shape = known_shape(value)
    dim = None if shape is None or axis >= shape.rank() else shape[axis]
    if isinstance(dim, int):
        return dim
    return Unknown(dim.value) if dim is not None and dim.value else Unknown((id(value), axis))


def _gather(node: ir.Node, known: dict[ir.Value, Elements]) -> Elements | None:
    data = _elements(node.inputs[0], known)
    index = array_of(input_at(node, 1), MAX_ELEMENTS)
    if data is None or index is None or index.ndim > 1 or int_attribute(node, "axis", 0) not in (0, -1):
        return None
    if not _is_vector(node.inputs[0]) or any(not -len(data) <= int(i) < len(data) for i in index.reshape(-1)):
        return None
    return tuple(data[int(i)] for i in index.reshape(-1))


def _size(node: ir.Node, known: dict[ir.Value, Elements]) -> Elements | None:
    """The number of elements of a vector that is known, such as the rank by the size of a shape."""
    data = known.get(node.inputs[0]) if node.inputs[0] is not None else None
    return None if data is None or not _is_vector(node.inputs[0]) else (len(data),)


def _is_vector(value: ir.Value | None) -> bool:
    return value is not None and value.shape is not None and value.shape.rank() == 1


def _slice(node: ir.Node, known: dict[ir.Value, Elements]) -> Elements | None:
    data = _elements(node.inputs[0], known)
    bounds = [array_of(input_at(node, index), 1) for index in (1, 2)]
    if data is None or len(node.inputs) < 3 or any(bound is None for bound in bounds):
        return None
    step = array_of(input_at(node, 4), 1) if input_at(node, 4) is not None else np.array([1])
    if step is None or int(step.reshape(-1)[0]) != 1:
        return None
    start, end = (int(bound.reshape(-1)[0]) for bound in bounds if bound is not None)
    return data[start:end]


def _concat(node: ir.Node, known: dict[ir.Value, Elements]) -> Elements | None:
    parts = [_elements(value, known) for value in node.inputs]
    if any(part is None for part in parts) or not all(_is_vector(value) for value in node.inputs):
        return None
    joined = tuple(element for part in parts if part is not None for element in part)
    return joined if len(joined) <= MAX_ELEMENTS else None


def _same(node: ir.Node, known: dict[ir.Value, Elements]) -> Elements | None:
    """Ops that change at most the rank; a vector of several elements keeps its rank here."""
    data = _elements(node.inputs[0], known)
    rank = node.outputs[0].shape
    return data if data is not None and rank is not None and rank.rank() <= 1 else None


def _cast(node: ir.Node, known: dict[ir.Value, Elements]) -> Elements | None:
    return _same(node, known) if int_attribute(node, "to", 0) == ir.DataType.INT64.value else None


def _arithmetic(node: ir.Node, known: dict[ir.Value, Elements]) -> Elements | None:
    """Only what keeps an unknown dimension itself (times 1, plus 0) or has numbers on both sides."""
    left, right = (_elements(value, known) for value in node.inputs[:2])
    if left is None or right is None or not (len(left) == len(right) or 1 in (len(left), len(right))):
        return None
    if node.outputs[0].shape is None or node.outputs[0].shape.rank() > 1 or 0 in (len(left), len(right)):
        return None
    size = max(len(left), len(right))
    pairs = zip(left * (size // len(left)), right * (size // len(right)), strict=True)
    combined = [_combine(node.op_type, one, other) for one, other in pairs]
    return tuple(e for e in combined if e is not None) if all(e is not None for e in combined) else None


def _combine(op: str, one: Element, other: Element) -> Element | None:
    if isinstance(one, int) and isinstance(other, int):
        result = {"Add": one + other, "Sub": one - other, "Mul": one * other}[op]
        return result if -(1 << 63) <= result < 1 << 63 else None
    neutral = 1 if op == "Mul" else 0
    if other == neutral:
        return one
    return other if one == neutral and op != "Sub" else None


_RULES = {
    "Shape": _shape,
    "Gather": _gather,
    "Slice": _slice,
    "Size": _size,
    "Concat": _concat,
    "Unsqueeze": _same,
    "Squeeze": _same,
    "Identity": _same,
    "Cast": _cast,
    "Add": _arithmetic,
    "Sub": _arithmetic,
    "Mul": _arithmetic,
}


def _make_constant(node: ir.Node, elements: Elements, names: Names) -> int:
    output = node.outputs[0]
    numbers = [element for element in elements if isinstance(element, int)]
    whole = len(numbers) == len(elements) and output.shape is not None and output.dtype == ir.DataType.INT64
    if not whole or output.is_graph_output() or not output.uses() or node.graph is None:
        return 0
    rank = output.shape.rank() if output.shape is not None else 1
    if rank > 1 or (rank == 0 and len(numbers) != 1):
        return 0
    constant = add_constant(node.graph, np.array(numbers, np.int64).reshape(() if rank == 0 else -1), names)
    for user, index in output.uses():
        user.replace_input_with(index, constant)
    return 1


def _fix_target(node: ir.Node, known: dict[ir.Value, Elements], names: Names) -> int:
    data, target = input_at(node, 0), input_at(node, 1)
    elements = _elements(target, known)
    if data is None or target is None or elements is None or tensor_of(target) is not None or node.graph is None:
        return 0
    keeps_zeros = int_attribute(node, "allowzero", 0) != 0
    sizes = _target(elements, data) if not (keeps_zeros and 0 in elements) else None
    if sizes is None:
        return 0
    if keeps_zeros:
        # No size is written as 0 any more except to copy a dimension, which is right when that is 0 as well.
        del node.attributes["allowzero"]
    node.replace_input_with(1, add_constant(node.graph, np.array(sizes, np.int64), names))
    return 1


def _target(elements: Elements, data: ir.Value) -> list[int] | None:
    """Numbers for the elements: themselves, 0 where the input's dimension of that position is the same, one -1."""
    shape = known_shape(data)
    rank = shape.rank() if shape is not None else 0
    sizes: list[int | None] = []
    for index, element in enumerate(elements):
        if isinstance(element, int):
            sizes.append(element)
        else:
            sizes.append(0 if index < rank and dimension(data, index) == element else None)
    missing = sizes.count(None)
    others_positive = all(size is None or size > 0 for size in sizes)
    if missing > 1 or (missing == 1 and not others_positive):
        return None
    return [-1 if size is None else size for size in sizes]
