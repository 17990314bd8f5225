"""A Model as readable text, for dumps and for `smelt print`.

Input: a model or graph. Output: text, one line per node, bodies of control flow indented below their node. Invariant:
names are shown escaped and shortened, so nothing in a model can disturb a terminal; nothing recurses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx_ir as ir

from smelt.ir.walk import subgraphs

_PLAIN = re.compile(r"[A-Za-z0-9_./:\-]+")
_MAX_NAME = 60
_MAX_ITEMS = 8
_MAX_VALUES = 4


def format_model(model: ir.Model) -> str:
    """The whole model: versions, graph, functions."""
    opsets = ", ".join(f"{shown(domain) or 'onnx'} {version}" for domain, version in model.opset_imports.items())
    lines = [f"model ir {model.ir_version}, opset {opsets}"]
    lines.extend(_graph_lines(model.graph, "graph"))
    for function in model.functions.values():
        lines.extend(_graph_lines(function.graph, f"function {shown(function.domain)}::{shown(function.name)}"))
    return "\n".join(lines) + "\n"


def format_graph(graph: ir.Graph) -> str:
    """One graph with its nested graphs."""
    return "\n".join(_graph_lines(graph, "graph")) + "\n"


def _graph_lines(root: ir.Graph, title: str) -> Iterator[str]:
    """Walk with a stack of what is still to print: nodes of a graph, or the next nested graph."""
    yield from _head(root, title, "")
    pending: list[tuple[Iterator[ir.Node], ir.Graph, str]] = [(iter(root), root, "  ")]
    queued: list[list[tuple[ir.Graph, str]]] = [[]]
    while pending:
        nodes, graph, indent = pending[-1]
        if queued[-1]:
            inner, label = queued[-1].pop(0)
            yield from _head(inner, label, indent + "  ")
            pending.append((iter(inner), inner, indent + "    "))
            queued.append([])
            continue
        node = next(nodes, None)
        if node is None:
            yield f"{indent}return {', '.join(format_value(value) for value in graph.outputs)}"
            pending.pop()
            queued.pop()
            continue
        yield indent + format_node(node)
        queued[-1].extend((body, "body") for body in subgraphs(node))


def _head(graph: ir.Graph, title: str, indent: str) -> Iterator[str]:
    yield f"{indent}{title} {shown(graph.name or '')}({', '.join(format_value(value) for value in graph.inputs)})"
    for value in graph.initializers.values():
        yield f"{indent}  const {format_value(value)}{_content(value.const_value)}"


def format_node(node: ir.Node) -> str:
    """`a: float32[n] = Op(b, c) {axis=1}  # name`"""
    outputs = ", ".join(format_value(value) for value in node.outputs)
    inputs = ", ".join("_" if value is None else f"%{shown(value.name or '')}" for value in node.inputs)
    op = shown(node.op_type) if not node.domain else f"{shown(node.domain)}::{shown(node.op_type)}"
    attributes = ", ".join(f"{shown(name)}={_attribute(attribute)}" for name, attribute in node.attributes.items())
    text = f"{outputs} = {op}({inputs})"
    return text + (f" {{{attributes}}}" if attributes else "") + (f"  # {shown(node.name)}" if node.name else "")


def format_value(value: ir.Value) -> str:
    """`%name: type[dims]`, as far as known."""
    name = f"%{shown(value.name or '')}"
    kind = format_type(value)
    return f"{name}: {kind}" if kind else name


def format_type(value: ir.Value) -> str:
    """The type with dims, e.g. `float[n, 8]`."""
    if value.type is None:
        return ""
    wrappers, inner = "", value.type
    while isinstance(inner, ir.SequenceType | ir.OptionalType):
        wrappers += "seq " if isinstance(inner, ir.SequenceType) else "optional "
        inner = inner.elem_type
    dims = "" if value.shape is None else "[" + ", ".join(_dim(dim) for dim in value.shape) + "]"
    return f"{wrappers}{inner.dtype.name.lower()}{dims}"


def _dim(dim: int | ir.SymbolicDim) -> str:
    if isinstance(dim, int):
        return str(dim)
    return shown(dim.value) if dim.value else "?"


def _content(tensor: ir.TensorProtocol | None) -> str:
    if tensor is None or tensor.dtype == ir.DataType.STRING or tensor.size > _MAX_VALUES:
        return ""
    return f" = {tensor.numpy().tolist()}"


def _attribute(attribute: ir.Attr) -> str:
    if attribute.is_ref():
        return f"@{shown(attribute.ref_attr_name or '')}"
    kind, content = attribute.type, attribute.value
    if kind in (ir.AttributeType.INT, ir.AttributeType.FLOAT):
        return repr(content)
    if kind == ir.AttributeType.STRING:
        return shown(str(content), quoted=True)
    if kind in (ir.AttributeType.INTS, ir.AttributeType.FLOATS):
        items = [str(item) for item in tuple(content)[:_MAX_ITEMS]]
        return "[" + ", ".join(items) + (", ...]" if len(content) > _MAX_ITEMS else "]")
    if kind == ir.AttributeType.TENSOR:
        tensor = attribute.as_tensor()
        return f"{tensor.dtype.name.lower()}{list(tensor.shape.numpy())}{_content(tensor)}"
    return kind.name.lower()


def shown(text: str, *, quoted: bool = False) -> str:
    """A name that is safe to print: plain ASCII as it is, the rest escaped; long ones shortened."""
    short = text if len(text) <= _MAX_NAME else text[: _MAX_NAME - 3] + "..."
    if not text:
        return "''" if quoted else ""
    return short if _PLAIN.fullmatch(short) and not quoted else ascii(short)
