"""What a node should give, evaluated with numpy: the yardstick of verification.

Input: nodes and arrays. Output: arrays. Invariant: with `wide` (the default) every float is a float64 from input to
output, conversions between float types included, so that the result is free of the model's own rounding. A
declaration's own reference rules over that of the onnx package.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import onnx
import onnx_ir as ir
from onnx import external_data_helper, helper, numpy_helper

from smelt.ops.reference_rules import RULES, max_pool, max_pool_places
from smelt.ops.registry import Reference, lookup
from smelt.ops.wide_floats import Array, Value, widened

RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")


class NoReferenceError(Exception):
    """Neither a declaration nor the onnx package says what this node gives."""


def evaluate(
    node: ir.Node,
    inputs: Sequence[Array | None],
    opset: int,
    *,
    wide: bool = True,
    captured: Mapping[str, Array] | None = None,
) -> list[Array]:
    """A node's outputs. `opset` is the version of the node's own domain; `captured` are outer values of subgraphs."""
    if node.domain in ("", "ai.onnx") and node.op_type in RANDOM:
        raise NoReferenceError(f"{node.op_type} gives random numbers")
    operands = [_operand(node, i, a, wide) for i, a in enumerate(inputs)]
    declared = _declared(node, opset)
    with np.errstate(all="ignore"):
        if declared is not None:
            made = declared(*operands, **_attributes(node))
            outputs = list(made) if isinstance(made, tuple) else [made]
        else:
            outputs = _by_rule(node, operands, opset) or _by_onnx(node, operands, opset, wide, captured or {})
    if len(outputs) < sum(1 for v in node.outputs if v.name):
        raise NoReferenceError(f"{node.op_type} gives more outputs than its reference")
    return [_output(v, a, wide) for v, a in zip(node.outputs, outputs, strict=False)]


def evaluate_nodes(
    nodes: Iterable[ir.Node],
    env: MutableMapping[ir.Value, Array],
    opsets: Mapping[str, int],
    *,
    wide: bool = True,
) -> MutableMapping[ir.Value, Array]:
    """Evaluate nodes in order and add their outputs to `env`; constants are found by themselves."""
    for node in nodes:
        inputs = [None if v is None else _known(v, env) for v in node.inputs]
        captured = {v.name: _known(v, env) for v in _captured(node) if v.name}
        version = opsets.get("" if node.domain == "ai.onnx" else node.domain)
        if version is None:
            raise NoReferenceError(f"the model imports no opset for domain {node.domain!r}")
        if node.op_type == "If" and node.domain in ("", "ai.onnx"):
            made = _taken_branch(node, inputs[0], env, opsets, wide)
        else:
            made = evaluate(node, inputs, version, wide=wide, captured=captured)
        env.update(zip(node.outputs, made, strict=False))
    return env


def _taken_branch(
    node: ir.Node, condition: Value, env: Mapping[ir.Value, Array], opsets: Mapping[str, int], wide: bool
) -> list[Array]:
    """The outputs of the branch that the condition takes, by the rules that evaluate any graph."""
    name = "then_branch" if np.asarray(condition).reshape(-1)[0] else "else_branch"
    branch = node.attributes[name].as_graph()
    inner = evaluate_nodes(branch, dict(env), opsets, wide=wide)
    return [_output(value, _known(made, inner), wide) for value, made in zip(node.outputs, branch.outputs, strict=True)]


def _operand(node: ir.Node, position: int, value: Value, wide: bool) -> Value:
    """Wide, except where an op looks at the bits of its declared type."""
    if not wide or value is None:
        return value
    declared = node.inputs[position]
    if node.op_type == "BitCast" and declared is not None and declared.dtype is not None:
        return np.asarray(value).astype(declared.dtype.numpy())
    return widened(value)


def _output(declared: ir.Value, value: Value, wide: bool) -> Value:
    """Integers in their declared type: numpy's sums widen them."""
    dtype = declared.dtype
    if dtype is not None and dtype.is_integer() and getattr(value, "dtype", None) is not None:
        return np.asarray(value).astype(dtype.numpy())
    return widened(value) if wide else value


def _known(value: ir.Value, env: Mapping[ir.Value, Array]) -> Array:
    if value in env:
        return env[value]
    if value.const_value is None:
        raise KeyError(f"no array for the value {value.name!r}")
    return np.asarray(value.const_value.numpy())


def _captured(node: ir.Node) -> list[ir.Value]:
    """Values of enclosing graphs that the node's subgraphs read. Iterative: graphs nest."""
    found: dict[ir.Value, None] = {}
    graphs = [a.as_graph() for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH]
    inside = set(graphs)
    while graphs:
        for inner in graphs.pop():
            for value in inner.inputs:
                if value is not None and value.graph not in inside:
                    found[value] = None
            nested = [a.as_graph() for a in inner.attributes.values() if a.type == ir.AttributeType.GRAPH]
            graphs += nested
            inside.update(nested)
    return list(found)


def _declared(node: ir.Node, opset: int) -> Reference | None:
    declaration = lookup(node.domain, node.op_type, opset)
    return declaration.reference if declaration is not None else None


def _attributes(node: ir.Node) -> dict[str, Any]:
    return {name: _plain(attribute) for name, attribute in node.attributes.items()}


def _plain(attribute: ir.Attr) -> Any:
    value = attribute.value
    return np.asarray(value.numpy()) if isinstance(value, ir.TensorProtocol) else value


def _by_rule(node: ir.Node, operands: Sequence[Value], opset: int) -> list[Array] | None:
    if node.domain not in ("", "ai.onnx"):
        return None
    if len(node.outputs) > 1:
        return _maxima(node, operands) if node.op_type == "MaxPool" else None
    rule = RULES.get(node.op_type)
    made = rule(operands, _attributes(node)) if rule is not None else None
    if made is None and node.op_type == "ConvTranspose" and _attributes(node).get("group", 1) > 1:
        made = _by_groups(node, operands, opset)
    return None if made is None else [made]


def _maxima(node: ir.Node, operands: Sequence[Value]) -> list[Array] | None:
    attributes = _attributes(node)
    values = max_pool(operands, attributes)
    return None if values is None else [values, max_pool_places(operands, attributes)]


def _by_groups(node: ir.Node, operands: Sequence[Value], opset: int) -> Array:
    """A grouped transposed convolution as one for each group."""
    count = node.attributes["group"].as_int()
    x, weight, *bias = operands
    parts = zip(np.split(x, count, 1), np.split(weight, count, 0), strict=True)
    kept = [a for name, a in node.attributes.items() if name != "group"]
    single = ir.Node("", node.op_type, [ir.Value(name="x"), ir.Value(name="w")], kept, outputs=[ir.Value(name="y")])
    made = np.concatenate([evaluate(single, part, opset, wide=False)[0] for part in parts], axis=1)
    if not bias or bias[0] is None:
        return made
    return made + np.reshape(bias[0], (1, -1, *(1,) * (made.ndim - 2)))


def _by_onnx(
    node: ir.Node, inputs: Sequence[Value], opset: int, wide: bool, captured: Mapping[str, Array]
) -> list[Array]:
    proto = _renamed(ir.serde.serialize_node(node))
    _hold_tensors(proto, node)
    axes = _scanned_axes(proto)
    moved = [a if axis == 0 else np.moveaxis(a, axis, 0) for axis, a in zip(axes.inputs, inputs, strict=True)]
    feeds = {name: a for name, a in zip(proto.input, moved, strict=True) if name}
    feeds.update({name: widened(a) if wide else a for name, a in captured.items()})
    outputs = [name for name in proto.output if name]
    graph = helper.make_graph([proto], "one", [_typed(n, a) for n, a in feeds.items()],
                              [helper.make_empty_tensor_value_info(n) for n in outputs])  # fmt: skip
    versions = {proto.domain: max(opset, 11) if node.op_type == "Scatter" else opset}
    versions.setdefault("", onnx.defs.onnx_opset_version())
    from smelt.ops import onnx_evaluator  # heavy, and needed only where nothing else says what a node gives

    try:
        made = onnx_evaluator.run(graph, versions, feeds, wide=wide)
    except Exception as error:  # whatever an implementation raises for a node that it cannot evaluate
        raise NoReferenceError(f"{node.domain or 'ai.onnx'}::{node.op_type}: {error}") from error
    by_name = dict(zip(outputs, cast("Sequence[Array]", made), strict=True))
    found = [by_name.get(name, np.zeros(0)) for name in proto.output]
    return [a if axis == 0 else np.moveaxis(a, 0, axis) for axis, a in zip(axes.outputs, found, strict=True)]


def _hold_tensors(proto: onnx.NodeProto, node: ir.Node) -> None:
    """Tensors of subgraphs that lie in files are read: the onnx package looks for such beside a model only."""
    for attribute in proto.attribute:
        if attribute.type == onnx.AttributeProto.TENSOR and external_data_helper.uses_external_data(attribute.t):
            held = node.attributes[attribute.name].as_tensor().numpy()
            attribute.t.CopyFrom(numpy_helper.from_array(np.asarray(held), attribute.t.name))
        if attribute.type != onnx.AttributeProto.GRAPH:
            continue
        graph = node.attributes[attribute.name].as_graph()
        for tensor in attribute.g.initializer:
            held = graph.initializers[tensor.name].const_value
            if held is not None and external_data_helper.uses_external_data(tensor):
                tensor.CopyFrom(numpy_helper.from_array(np.asarray(held.numpy()), tensor.name))
        for inner, one in zip(attribute.g.node, graph, strict=True):
            _hold_tensors(inner, one)


@dataclass(frozen=True)
class _Axes:
    """Along which a Scan walks each input and stacks each output; 0 for all else."""

    inputs: list[int]
    outputs: list[int]


def _scanned_axes(proto: onnx.NodeProto) -> _Axes:
    """What the onnx package does only along the first axis; the node is changed to say so."""
    numbers = {a.name: [a.i, *a.ints] for a in proto.attribute}
    axes = _Axes([0] * len(proto.input), [0] * len(proto.output))
    if proto.op_type != "Scan" or proto.domain:
        return axes
    for side, name in ((axes.inputs, "scan_input_axes"), (axes.outputs, "scan_output_axes")):
        given = numbers.get(name, [0])[1:]
        side[len(side) - len(given) :] = given
    kept = [a for a in proto.attribute if a.name not in ("scan_input_axes", "scan_output_axes")]
    del proto.attribute[:]
    proto.attribute.extend(kept)
    return axes


def _renamed(proto: onnx.NodeProto) -> onnx.NodeProto:
    """Own names for inputs and outputs: one value may be both an input of the node and captured by its subgraph."""
    if proto.domain == "ai.onnx":
        proto.domain = ""
    if not proto.domain and proto.op_type == "Scatter":
        proto.op_type = "ScatterElements"
    for names, letter in ((proto.input, "input"), (proto.output, "output")):
        for i, name in enumerate(names):
            names[i] = f"{letter}:{i}" if name else ""
    return proto


def _typed(name: str, value: Value) -> onnx.ValueInfoProto:
    if not isinstance(value, np.ndarray):
        return onnx.ValueInfoProto(name=name)
    array = cast("Array", value)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
