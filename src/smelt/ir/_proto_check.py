"""Checks on a ModelProto before it becomes a Model.

Input: a parsed, untrusted ModelProto. Output: nothing, or an error that names the tensor or node. Invariant: what
passes can be given to onnx_ir: bounded nesting and size, unique names, and tensors whose data fit their shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import onnx
import onnx_ir as ir
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from smelt.base.errors import LoadError, ModelError
from smelt.ir._external import ExternalFolder

MAX_NESTING = 32
MAX_NODES = 2_000_000
MAX_RANK = 32
_MAX_BYTES = 1 << 62

_DENSE = "Store the tensor densely."
_TWO_VALUES = frozenset((onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128))
_FIELD: dict[int, str] = {
    onnx.TensorProto.FLOAT: "float_data",
    onnx.TensorProto.COMPLEX64: "float_data",
    onnx.TensorProto.DOUBLE: "double_data",
    onnx.TensorProto.COMPLEX128: "double_data",
    onnx.TensorProto.INT64: "int64_data",
    onnx.TensorProto.UINT32: "uint64_data",
    onnx.TensorProto.UINT64: "uint64_data",
    onnx.TensorProto.STRING: "string_data",
}


def check_proto(proto: onnx.ModelProto, folder: ExternalFolder | None) -> None:
    """Check names, nesting and tensors of all graphs and functions; data files are looked for in `folder`."""
    if not proto.HasField("graph"):
        raise LoadError("SM-LOAD-002", "the file holds no graph")
    _check_opset_table(proto.opset_import)
    budget = MAX_NODES
    for graph, depth in _graphs(proto):
        if depth > MAX_NESTING:
            raise LoadError("SM-LOAD-005", f"control flow is nested deeper than {MAX_NESTING}")
        budget -= len(graph.node)
        if budget < 0:
            raise LoadError("SM-LOAD-005", f"the model has more than {MAX_NODES:,} nodes")
        _check_graph(graph, folder)


def check_text(proto: Message) -> None:
    """Every text field is UTF-8; protobuf gives the others as bytes instead of refusing them."""
    pending: list[Message] = [proto]
    while pending:
        message = pending.pop()
        if isinstance(message, onnx.TensorProto):
            # Its large fields are not text, and reading them here would copy them.
            _require_text("name", message.name)
            _require_text("doc_string", message.doc_string)
            pending.extend(message.external_data)
            pending.extend(message.metadata_props)
            continue
        for field, content in message.ListFields():
            items: Any = (content,) if isinstance(content, str | bytes | Message) else content
            if field.type == FieldDescriptor.TYPE_STRING:
                for item in items:
                    _require_text(field.name, item)
            elif field.type == FieldDescriptor.TYPE_MESSAGE:
                pending.extend(items)


def _require_text(field: str, content: object) -> None:
    if not isinstance(content, str):
        raise LoadError("SM-LOAD-002", f"a text field of the model ({field}) is not UTF-8")


def _check_opset_table(table: Iterable[onnx.OperatorSetIdProto]) -> None:
    seen: dict[str, int] = {}
    for entry in table:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if seen.setdefault(domain, entry.version) != entry.version:
            raise LoadError("SM-LOAD-006", f"the opset of domain {domain[:80]!r} is declared twice")


def _graphs(proto: onnx.ModelProto) -> Iterator[tuple[onnx.GraphProto | onnx.FunctionProto, int]]:
    pending: list[tuple[onnx.GraphProto | onnx.FunctionProto, int]] = [(proto.graph, 1)]
    pending.extend((function, 1) for function in proto.functions)
    while pending:
        graph, depth = pending.pop()
        yield graph, depth
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    pending.append((attribute.g, depth + 1))
                pending.extend((inner, depth + 1) for inner in attribute.graphs)


def _check_graph(graph: onnx.GraphProto | onnx.FunctionProto, folder: ExternalFolder | None) -> None:
    defined: set[str] = set()
    if isinstance(graph, onnx.GraphProto):
        _check_borders(graph, defined, folder)
    else:
        for name in graph.input:
            _define(name, defined, "function input", None)
    for node in graph.node:
        for name in node.output:
            if name:
                _define(name, defined, "output", node.name or node.op_type)
        for attribute in node.attribute:
            _check_attribute(attribute, node, folder)


def _check_borders(graph: onnx.GraphProto, defined: set[str], folder: ExternalFolder | None) -> None:
    if graph.sparse_initializer:
        raise LoadError("SM-LOAD-007", "sparse initializers are not supported", hint=_DENSE)
    for info in graph.input:
        _define(info.name, defined, "graph input", None)
    inputs = set(defined)
    initialized: set[str] = set()
    for tensor in graph.initializer:
        _define(tensor.name, initialized, "initializer", None)
        check_tensor(tensor, folder)
    defined.update(initialized - inputs)
    for info in graph.output:
        if not info.name:
            raise ModelError("SM-MODEL-001", "a graph output has no name")


def _define(name: str, defined: set[str], what: str, node: str | None) -> None:
    if not name:
        raise ModelError("SM-MODEL-001", f"a {what} has no name")
    if name in defined:
        raise ModelError("SM-MODEL-001", f"{what} {_shown(name)} is defined twice", node=_short(node))
    defined.add(name)


def _check_attribute(attribute: onnx.AttributeProto, node: onnx.NodeProto, folder: ExternalFolder | None) -> None:
    if attribute.type in (onnx.AttributeProto.SPARSE_TENSOR, onnx.AttributeProto.SPARSE_TENSORS):
        raise LoadError(
            "SM-LOAD-007", "sparse tensors are not supported", node=_short(node.name or node.op_type), hint=_DENSE
        )
    if attribute.type == onnx.AttributeProto.TENSOR:
        check_tensor(attribute.t, folder, node.name or node.op_type)
    for tensor in attribute.tensors:
        check_tensor(tensor, folder, node.name or node.op_type)


def check_tensor(tensor: onnx.TensorProto, folder: ExternalFolder | None, node: str | None = None) -> None:
    """The tensor's type exists and its data, inline or external, have exactly the size of its shape."""
    name = tensor.name or "(attribute)"
    count = _element_count(tensor, name, node)
    dtype = _dtype(tensor, name, node)
    if tensor.HasField("segment"):
        raise ModelError("SM-MODEL-004", f"tensor {_shown(name)} is segmented", node=_short(node))
    if dtype == ir.DataType.STRING:
        _check_count(tensor, count, name, node)
        return
    expected = (count * dtype.bitwidth + 7) // 8
    if expected > _MAX_BYTES:
        raise ModelError("SM-MODEL-004", f"tensor {_shown(name)} is too large for any memory", node=_short(node))
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        if folder is None:
            raise LoadError(
                "SM-LOAD-003",
                f"tensor {_shown(name)} has external data, and the model was not given by path",
                hint="Give the model's path, or load its data into it first.",
            )
        folder.check(tensor, expected)
    elif tensor.HasField("raw_data"):
        if len(tensor.raw_data) != expected:
            message = f"tensor {_shown(name)} has {len(tensor.raw_data)} bytes of data, its shape needs {expected}"
            raise ModelError("SM-MODEL-004", message, node=_short(node))
    else:
        _check_count(tensor, _stored_values(tensor, count, dtype), name, node)


def _element_count(tensor: onnx.TensorProto, name: str, node: str | None) -> int:
    if len(tensor.dims) > MAX_RANK:
        message = f"tensor {_shown(name)} has rank {len(tensor.dims)}; the most is {MAX_RANK}"
        raise ModelError("SM-MODEL-004", message, node=_short(node))
    count = 1
    for dim in tensor.dims:
        if dim < 0:
            raise ModelError("SM-MODEL-004", f"tensor {_shown(name)} has the dimension {dim}", node=_short(node))
        count *= dim
    return count


def _dtype(tensor: onnx.TensorProto, name: str, node: str | None) -> ir.DataType:
    try:
        dtype = ir.DataType(tensor.data_type)
    except ValueError:
        dtype = ir.DataType.UNDEFINED
    if dtype == ir.DataType.UNDEFINED:
        message = f"tensor {_shown(name)} has the unknown element type {tensor.data_type}"
        raise ModelError("SM-MODEL-004", message, node=_short(node))
    return dtype


def _stored_values(tensor: onnx.TensorProto, count: int, dtype: ir.DataType) -> int:
    """How many entries the typed field must have; small types are packed into bytes first."""
    if tensor.data_type in _TWO_VALUES:
        return 2 * count
    return (count * dtype.bitwidth + 7) // 8 if dtype.bitwidth < 8 else count


def _check_count(tensor: onnx.TensorProto, expected: int, name: str, node: str | None) -> None:
    stored = len(getattr(tensor, _FIELD.get(tensor.data_type, "int32_data")))
    if stored != expected:
        message = f"tensor {_shown(name)} has {stored} values, its shape needs {expected}"
        raise ModelError("SM-MODEL-004", message, node=_short(node))


def _short(name: str | None) -> str | None:
    return name if name is None or len(name) <= 80 else name[:77] + "..."


def _shown(name: str) -> str:
    return repr(_short(name))
