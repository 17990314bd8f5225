"""A body of control flow as a model of its own.

Input: a graph of a model, nested or not. Output: a copy of it as a main graph, with what it reads of outer graphs as
inputs, constants as initializers. Invariant: the given graph is unchanged; nodes have the order that they had, so that
those of the copy pair up with those of the original; tensors are shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from smelt.ir.sizes import derived_sizes, known_shape, mark_sizes
from smelt.ir.walk import nested_graphs


@dataclass(frozen=True)
class BodyModel:
    """`captured` are the outer values that are no constants, with the inputs that stand for them."""

    model: ir.Model
    captured: Mapping[ir.Value, ir.Value]


def body_model(graph: ir.Graph, of: ir.Model) -> BodyModel:
    """The graph alone. Of outer values it knows the sizes that were derived, not those that were declared."""
    copy = graph.clone(allow_outer_scope_values=True)
    inside = set(nested_graphs(copy))
    taken = {value.name for one in inside for value in _values(one)}
    made: dict[ir.Value, ir.Value] = {}

    def own(value: ir.Value) -> ir.Value:
        if value.graph in inside:
            return value
        if value not in made:
            made[value] = _stand_in(value, taken)
        return made[value]

    for one in nested_graphs(copy):
        for node in one:
            for place, value in enumerate(node.inputs):
                if value is not None and value.graph not in inside:
                    node.replace_input_with(place, own(value))
        one.outputs[:] = [own(value) for value in one.outputs]
    for value in made.values():
        if value.const_value is not None:
            copy.register_initializer(value)
        else:
            copy.inputs.append(value)
    copy.opset_imports.update(of.opset_imports)
    functions = [function.clone() for function in of.functions.values()]
    model = ir.Model(copy, ir_version=of.ir_version, functions=functions)
    return BodyModel(model, {old: new for old, new in made.items() if new.const_value is None})


def _values(graph: ir.Graph) -> list[ir.Value]:
    return [*graph.inputs, *graph.initializers.values(), *(value for node in graph for value in node.outputs)]


def _stand_in(value: ir.Value, taken: set[str | None]) -> ir.Value:
    """Scopes that do not meet may use one name twice."""
    name, number = value.name or "outer", 0
    while name in taken:
        name, number = f"{value.name}.{number}", number + 1
    taken.add(name)
    shape = value.shape if value.const_value is not None else known_shape(value)
    made = ir.Value(name=name, type=value.type, shape=None if shape is None else ir.Shape(shape))
    made.const_value = value.const_value
    mark_sizes(made, derived_sizes(value))
    return made
