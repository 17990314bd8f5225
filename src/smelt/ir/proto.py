"""ModelProto <-> Model, with the types that onnx_ir does not know.

Input: a checked ModelProto; a Model. Output: the Model; the ModelProto. Invariant: inputs and outputs whose type is, or
holds, a map have no type in the Model and keep their own in every proto that is made of it, also of copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, cast

import onnx
import onnx_ir as ir
from onnx_ir.external_data import set_base_dir  # pyright: ignore[reportUnknownVariableType]

from smelt.ir.walk import model_graphs, subgraphs

_TYPE: Final = "smelt.type"  # of a value: the serialized TypeProto that the Model cannot hold


def from_proto(proto: onnx.ModelProto) -> ir.Model:
    """As `onnx_ir.from_proto`; the proto stays as it is."""
    hidden = {info.name: info.type.SerializeToString() for info in _infos(proto) if _holds_map(info.type)}
    if not hidden:
        return ir.from_proto(proto)
    bare = onnx.ModelProto()
    bare.CopyFrom(proto)
    for info in _infos(bare):
        if info.name in hidden:
            info.ClearField("type")
    model = ir.from_proto(bare)
    for graph in model_graphs(model, functions=True):
        for value in (*graph.inputs, *graph.outputs):
            if value.name in hidden:
                value.meta[_TYPE] = hidden[value.name]
    return model


def load_file(path: Path) -> ir.Model:
    """As `onnx_ir.load`: a file that smelt itself wrote."""
    model = from_proto(onnx.load(path, load_external_data=False))
    set_base_dir(model.graph, path.parent)
    return model


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """As `onnx_ir.to_proto`."""
    proto = ir.to_proto(model)
    if any(_TYPE in value.meta for graph in model_graphs(model) for value in (*graph.inputs, *graph.outputs)):
        _give_types(model.graph, proto.graph)
    return proto


def has_type_of_its_own(value: ir.Value) -> bool:
    """Whether the value's type is one that the Model does not hold."""
    return _TYPE in value.meta


def _give_types(graph: ir.Graph, proto: onnx.GraphProto) -> None:
    for values, infos in ((graph.inputs, proto.input), (graph.outputs, proto.output)):
        for value, info in zip(values, infos, strict=True):
            if _TYPE in value.meta:
                info.type.ParseFromString(cast("bytes", value.meta[_TYPE]))
    for node, other in zip(graph, proto.node, strict=True):
        for inner, inner_proto in zip(subgraphs(node), bodies_of(other), strict=True):
            _give_types(inner, inner_proto)


def bodies_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that the node holds in its attributes."""
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            continue
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def _infos(proto: onnx.ModelProto) -> Iterator[onnx.ValueInfoProto]:
    pending: list[onnx.GraphProto] = [proto.graph]
    for function in proto.functions:
        yield from function.value_info
        pending += _all_bodies(function.node)
    while pending:
        graph = pending.pop()
        yield from graph.input
        yield from graph.output
        yield from graph.value_info
        pending += _all_bodies(graph.node)


def _all_bodies(nodes: Iterable[onnx.NodeProto]) -> list[onnx.GraphProto]:
    return [body for node in nodes for body in bodies_of(node)]


def _holds_map(kind: onnx.TypeProto) -> bool:
    which = kind.WhichOneof("value")
    if which in ("sequence_type", "optional_type"):
        return _holds_map(getattr(kind, which).elem_type)
    return which in ("map_type", "opaque_type")
