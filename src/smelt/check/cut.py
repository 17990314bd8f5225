"""Some nodes of a model as a model of their own.

Input: a model and, where it could be run, the values in it. Output: for any choice of its nodes, a model of these with
feeds. Invariant: names, order, attributes and weights are the original's; what the chosen nodes read and others made
is an input, fed with what it was in the whole model; the original is unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir

from smelt.ir.walk import scopes
from smelt.passes import run_passes

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Cut:
    """`feeds` is None when a value that the nodes read is not known, so that inputs must be made up."""

    model: ir.Model
    feeds: dict[str, Array] | None


class Cutter:
    def __init__(self, model: ir.Model, values: Mapping[str, Array]) -> None:
        self.model = model
        self.values = values
        self.nodes = list(model.graph)
        captured = scopes(model.graph).captured
        self.reads = [_names([*node.inputs, *captured.get(node, ())]) for node in self.nodes]
        self.makes = [_names(node.outputs) for node in self.nodes]
        self.initializers = model.graph.initializers
        self.results = frozenset(value.name for value in model.graph.outputs if value.name)

    @cached_property
    def _types(self) -> dict[str, ir.Value]:
        """What is known about every value of the main graph."""
        copy = self.model.clone()
        run_passes(copy, only=("infer-shapes",))
        made = [value for node in copy.graph for value in node.outputs]
        return {value.name: value for value in (*copy.graph.inputs, *made) if value.name}

    def outputs(self, places: Sequence[int]) -> list[str]:
        """What the nodes at these places give to others: results of the model, and what the rest of it reads."""
        chosen = set(places)
        inside = {name for place in places for name in self.reads[place]}
        elsewhere = {name for place, names in enumerate(self.reads) if place not in chosen for name in names}
        made = [name for place in places for name in self.makes[place]]
        wanted = [name for name in made if name in self.results or name in elsewhere or name not in inside]
        return wanted or made

    def cut(self, places: Sequence[int], outputs: Collection[str] = ()) -> Cut | None:
        """The nodes at these places; of what they give, only `outputs` where some are named. None when impossible."""
        made = {name for place in places for name in self.makes[place]}
        read = list(dict.fromkeys(name for place in places for name in self.reads[place] if name not in made))
        inputs = [name for name in read if name not in self.initializers or self._is_input(name)]
        given = [self._value(name) for name in inputs]
        results = [self._value(name) for name in self.outputs(places) if not outputs or name in outputs]
        if not results or any(value is None for value in (*given, *results)):
            return None
        weights = [self.initializers[name] for name in read if name in self.initializers]
        model = self._assembled(places, [v for v in given if v], [v for v in results if v], weights)
        known = all(name in self.values for name in inputs)
        return Cut(model, {name: self.values[name] for name in inputs} if known else None)

    def _is_input(self, name: str) -> bool:
        return self.initializers[name].is_graph_input()

    def _value(self, name: str) -> ir.Value | None:
        """A fresh value with the declared type; where that is unknown, that of what was seen."""
        declared, seen = self._types.get(name), self.values.get(name)
        if declared is not None and declared.type is not None:
            shape = declared.shape
            if shape is None and seen is not None:
                shape = ir.Shape([None] * seen.ndim)
            return ir.Value(name=name, type=declared.type, shape=None if shape is None else ir.Shape(shape))
        if seen is None:
            return None
        dtype = ir.DataType.from_numpy(seen.dtype)
        return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape([None] * seen.ndim))

    def _assembled(
        self, places: Sequence[int], inputs: list[ir.Value], outputs: list[ir.Value], weights: list[ir.Value]
    ) -> ir.Model:
        """By way of a proto without tensors: only serialization copies nodes with their graphs."""
        empty = ir.Graph(inputs, [], nodes=[], opset_imports=dict(self.model.opset_imports), name="part")
        functions = list(self.model.functions.values())
        proto = ir.to_proto(ir.Model(empty, ir_version=self.model.ir_version, functions=functions))
        proto.graph.node.extend(ir.serde.serialize_node(self.nodes[place]) for place in places)
        proto.graph.output.extend(ir.to_proto(value) for value in outputs)
        for weight in weights:
            assert weight.const_value is not None
            tensor = proto.graph.initializer.add()
            tensor.name, tensor.data_type = weight.name or "", int(weight.const_value.dtype)
            tensor.dims.extend([0])  # a place for the tensor itself
        model = ir.from_proto(proto)
        for weight in weights:
            made = model.graph.initializers[weight.name or ""]
            made.const_value, made.shape = weight.const_value, weight.shape
        return model


def _names(values: Sequence[ir.Value | None]) -> list[str]:
    return [value.name for value in values if value is not None and value.name]
