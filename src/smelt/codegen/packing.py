"""Packed constants become initializers of the model; packed weights become nodes that pack them.

Input: a model and the code of its regions. Output: one new value per packed constant or weight. Invariant: each is
packed once however many regions want it; a plain constant is dropped by the caller once nothing uses it. The nodes that
lay out a weight hang between it and the value, so a runner may cut them off and feed panels that it keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import onnx_ir as ir

from smelt.ir.backend import Packed, PackedTensors, RegionCode
from smelt.ir.records import Region
from smelt.ir.spilled import drop_pages, spilled

from .c.layout.arrangement import moved_shape
from .c.layout.formats import NARROW, format_named
from .registry import find_backend

_PREFIX: Final = "smelt.packed."
_LAYOUT: Final = "smelt.packed.layout"


def attach_packed(
    model: ir.Model, codes: Sequence[RegionCode], known: PackedTensors | None = None,
    origin: Mapping[ir.Value, ir.Value] | None = None,
) -> dict[Packed, ir.Value]:  # fmt: skip
    """Add the packed form of every constant and weight that the regions ask for.

    `known` has constants that were packed before, and keeps those that are packed now; where the model is a copy,
    `origin` says of which value each constant is one.
    """
    made: dict[Packed, ir.Value] = {}
    known = {} if known is None else known
    for wanted in (wanted for code in codes for wanted in code.inputs):
        if not isinstance(wanted, Packed) or wanted in made:
            continue
        name = _unused(model, f"{_PREFIX}{len(made)}")
        if wanted.source.const_value is None:
            made[wanted] = attach_panels(model, wanted, name)
            continue
        key = origin[wanted.source] if origin is not None else wanted.source, wanted.layout
        if key not in known:
            known[key] = _packed_constant(wanted, name)
        made[wanted] = _initializer(model, known[key], name)
    return made


def with_inputs(region: Region, code: RegionCode, packed: Mapping[Packed, ir.Value]) -> Region:
    """The region as the custom op sees it: only what the code reads, packed constants in place of plain ones."""
    return replace(region, inputs=tuple(packed[v] if isinstance(v, Packed) else v for v in code.inputs))


def packed_names(model: ir.Model) -> frozenset[str]:
    """The initializers that `attach_packed` made."""
    return frozenset(name for name in model.graph.initializers if name.startswith(_PREFIX))


def _unused(model: ir.Model, name: str) -> str:
    while name in model.graph.initializers:
        name += "_"
    return name


def _packed_constant(wanted: Packed, name: str) -> ir.TensorProtocol:
    constant = wanted.source.const_value
    assert constant is not None
    pack = find_backend(wanted.backend).pack
    made = spilled(pack(np.asarray(constant.numpy()), wanted.layout), name)
    drop_pages(constant)
    return made


def _initializer(model: ir.Model, tensor: ir.TensorProtocol, name: str) -> ir.Value:
    value = ir.Value(name=name, shape=ir.Shape(tensor.shape.numpy()), type=ir.TensorType(tensor.dtype))
    value.const_value = tensor
    model.graph.register_initializer(value)
    return value


# Weights


def attach_panels(model: ir.Model, wanted: Packed, name: str) -> ir.Value:
    """Add the nodes that lay out a weight to the model's graph."""
    nodes, value = panel_nodes(wanted.source, wanted.source, wanted.layout, name)
    model.graph.extend(nodes)
    return value


def panel_nodes(source: ir.Value, operand: ir.Value, layout: str, name: str) -> tuple[list[ir.Node], ir.Value]:
    """Plain ONNX that lays `operand`, which has the type and shape of `source`, out in panels."""
    assert source.shape is not None
    sizes = tuple(int(str(d)) for d in source.shape)
    steps = format_named(layout).steps(sizes)
    nodes: list[ir.Node] = []
    value, kept = operand, format_named(layout).dtype in NARROW
    dtype = source.dtype if kept and source.dtype is not None else ir.DataType.FLOAT
    if source.dtype != dtype:
        wide = ir.Value(name=f"{name}.wide", type=ir.TensorType(ir.DataType.FLOAT))
        nodes.append(ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(ir.DataType.FLOAT))], outputs=[wide]))
        value = wide
    for place, (op_type, argument) in enumerate(steps):
        last = place == len(steps) - 1
        out = ir.Value(name=name if last else f"{name}.{place}", type=ir.TensorType(dtype))
        if op_type == "Transpose":
            node = ir.Node("", op_type, [value], [ir.AttrInt64s("perm", argument)], outputs=[out])
        else:
            held = ir.Value(name=f"{name}.{place}.sizes", type=ir.TensorType(ir.DataType.INT64))
            tensor = ir.AttrTensor("value", ir.tensor(np.array(argument, np.int64)))
            nodes.append(ir.Node("", "Constant", [], [tensor], outputs=[held]))
            node = ir.Node("", op_type, [value, held], outputs=[out])
        nodes.append(node)
        value = out
    nodes[-1].metadata_props[_LAYOUT] = layout
    value.shape = ir.Shape(moved_shape(sizes, steps))
    return nodes, value


@dataclass(frozen=True)
class FedPanels:
    """An input that takes the panels of the weight `source`."""

    name: str
    source: str
    layout: str

    @property
    def dtype(self) -> str:
        """As torch and numpy call it."""
        return {"bf16": "bfloat16", "f16": "float16"}.get(format_named(self.layout).dtype, "float32")


def lift_panels(model: ir.Model) -> tuple[FedPanels, ...]:
    """Cut off the nodes that lay out weights: their results become inputs, and weights that nothing reads go."""
    lifted: list[FedPanels] = []
    graph = model.graph
    for node in [n for n in graph if _LAYOUT in n.metadata_props]:
        old = node.outputs[0]
        source = _origin(node)
        new = ir.Value(name=f"{old.name}.fed", shape=old.shape, type=ir.TensorType(old.dtype or ir.DataType.FLOAT))
        old.replace_all_uses_with(new)
        graph.inputs.append(new)
        lifted.append(FedPanels(new.name or "", source.name or "", node.metadata_props[_LAYOUT]))
        _remove_unused(graph, node)
    for name in {fed.source for fed in lifted}:
        value = next(v for v in graph.inputs if v.name == name)
        if not value.uses() and not value.is_graph_output():
            graph.inputs.remove(value)
    return tuple(lifted)


def _origin(node: ir.Node) -> ir.Value:
    value = node.inputs[0]
    assert value is not None
    producer = value.producer()
    return value if producer is None else _origin(producer)


def _remove_unused(graph: ir.Graph, node: ir.Node) -> None:
    """Remove a node and, from it up, what only served it."""
    sources: Iterable[ir.Value | None] = tuple(node.inputs)
    graph.remove(node, safe=True)
    for value in sources:
        producer = None if value is None else value.producer()
        if producer is not None and not any(v.uses() for v in producer.outputs):
            _remove_unused(graph, producer)
