"""Reading constants and replacing values, for passes.

Input: values and nodes of a model. Output: numpy constants, or a changed graph. Invariant: an initializer that is also
a graph input can be overridden by the caller and is never taken as a constant; a graph output keeps its name.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir

from smelt.ir.walk import model_graphs

Array = np.ndarray[Any, np.dtype[Any]]
ONNX = ""


def tensor_of(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor that the value always has, or None."""
    if value is None:
        return None
    producer = value.producer()
    if producer is not None:
        attribute = producer.attributes.get("value") if producer.op_type == "Constant" else None
        known = attribute is not None and not attribute.is_ref() and attribute.type == ir.AttributeType.TENSOR
        return attribute.as_tensor() if attribute is not None and known and producer.domain == ONNX else None
    if value.is_initializer() and not value.is_graph_input():
        return value.const_value
    return None


def array_of(value: ir.Value | None, max_size: int) -> Array | None:
    """The constant as an array when it has at most `max_size` elements of a type that numpy knows."""
    tensor = tensor_of(value)
    if tensor is None or tensor.size > max_size or tensor.dtype == ir.DataType.STRING:
        return None
    array = tensor.numpy()
    return array if array.dtype.kind in "biuf" else None


def scalar_of(value: ir.Value | None) -> float | None:
    """The number that a one-element constant of rank 0 or 1 holds."""
    array = array_of(value, 1)
    if array is None or array.size != 1 or array.ndim > 1:
        return None
    return float(array.reshape(-1)[0])


def only_user(value: ir.Value) -> ir.Node | None:
    """The single node that uses the value, when nothing else does."""
    if value.is_graph_output():
        return None
    users = value.consumers()
    return users[0] if len(users) == 1 else None


def is_op(node: ir.Node | None, *op_types: str, domain: str = ONNX) -> bool:
    """Whether the node is one of these ops."""
    return node is not None and node.domain == domain and node.op_type in op_types


def int_attribute(node: ir.Node, name: str, default: int) -> int:
    attribute = node.attributes.get(name)
    if attribute is None or attribute.is_ref() or attribute.type != ir.AttributeType.INT:
        return default
    return attribute.as_int()


def ints_attribute(node: ir.Node, name: str) -> tuple[int, ...] | None:
    attribute = node.attributes.get(name)
    if attribute is None or attribute.is_ref() or attribute.type != ir.AttributeType.INTS:
        return None
    return tuple(attribute.as_ints())


def input_at(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def replace_value(old: ir.Value, new: ir.Value) -> bool:
    """Let `new` take the place of `old` everywhere; False if a graph output's name would be lost."""
    if old.is_graph_output():
        graph, producer = old.graph, new.producer()
        if graph is None or producer is None or producer.graph is not graph or new.is_graph_output():
            return False
        name, old.name = old.name, None
        new.name, new.type, new.shape = name, old.type, old.shape
        for index, output in enumerate(graph.outputs):
            if output is old:
                graph.outputs[index] = new
    for user, index in old.uses():
        user.replace_input_with(index, new)
    return True


def drop_node(node: ir.Node) -> None:
    """Take a node without users out of its graph."""
    if node.graph is not None:
        node.graph.remove(node, safe=True)


class Names:
    """Value names that no graph of the model has yet."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._next = 0

    @cached_property
    def _taken(self) -> set[str | None]:
        """Read when a name is asked for first: most passes change nothing, and a model may have many values."""
        taken: set[str | None] = set()
        for graph in model_graphs(self._model, functions=True):
            taken.update(value.name for value in graph.inputs)
            taken.update(graph.initializers)
            taken.update(value.name for node in graph for value in node.outputs)
        return taken

    def like(self, name: str) -> str:
        """The name itself, or one that begins with it."""
        found, number = name, 0
        while found in self._taken:
            found, number = f"{name}_{number}", number + 1
        self._taken.add(found)
        return found

    def fresh(self, stem: str) -> str:
        while (name := f"smelt_{stem}_{self._next}") in self._taken:
            self._next += 1
        self._taken.add(name)
        return name


def add_constant(graph: ir.Graph, array: Array, names: Names, like: str | None = None) -> ir.Value:
    """A new initializer of the graph; `like` is what to call it, if that is free."""
    name = names.fresh("c") if like is None else names.like(like)
    tensor = ir.Tensor(np.ascontiguousarray(array).reshape(array.shape), name=name)
    value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor)
    graph.register_initializer(value)
    return value


def insert_node(
    before: ir.Node, op_type: str, inputs: list[ir.Value], like: ir.Value, names: Names, domain: str = ONNX,
    attributes: tuple[ir.Attr, ...] = (),
) -> ir.Node:  # fmt: skip
    """A new one-output node in front of `before`, whose result has the type and shape of `like`."""
    value = ir.Value(name=names.fresh("v"), type=like.type, shape=like.shape)
    node = ir.Node(domain, op_type, inputs, attributes, outputs=[value], name=names.fresh(op_type))
    node.metadata_props.update(before.metadata_props)
    assert before.graph is not None
    before.graph.insert_before(before, node)
    return node
