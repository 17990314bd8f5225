"""Nodes of types that ONNX Runtime's CPU provider has no kernel for -> the same in a wider type, between casts.

Input: a model with types. Output: the model, in which such nodes compute in a type that there is a kernel for: bfloat16
in float32, say. Invariant: a wider type holds every value of the one it stands for. Floats are rounded where they leave
a chain of such nodes, and not between its nodes: what ONNX Runtime does itself with float16.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import ClassVar

import onnx
import onnx_ir as ir

from smelt.ir.ort_kernels import formal_of, result_formal, substitutes
from smelt.ir.walk import model_graphs
from smelt.passes.rewriter.outcome import Outcome
from smelt.passes.rewriter.rules import drop_unread
from smelt.passes.rewriter.surgery import ONNX, Names, replace_value

# Ops that say by their types what they do: another type is another result.
_TYPED = frozenset((
    "Cast", "CastLike", "BitCast", "Constant", "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear",
    "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger",
))  # fmt: skip
_FLOATS = frozenset((ir.DataType.BFLOAT16, ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE))


class OrtCast:
    """Types without a kernel of ONNX Runtime's -> wider ones, with one Cast where a chain of such nodes ends.

    `nodes` are those that may be changed; all by default."""

    sets: ClassVar = ("ort",)

    def __init__(self, nodes: Collection[ir.Node] | None = None) -> None:
        self.nodes = nodes

    def __call__(self, model: ir.Model) -> Outcome:
        names, opset = Names(model), model.opset_imports.get(ONNX, 0)
        changes: Counter[str] = Counter()
        for graph in model_graphs(model):
            casts = _Casts(names)
            for node in [n for n in graph if self.nodes is None or n in self.nodes]:
                if _widened(node, opset, casts):
                    changes["node computed in a wider type"] += 1
            drop_unread(casts.made)
        return Outcome(changes)


def cast_for_stock(model: ir.Model, nodes: Collection[ir.Node]) -> bool:
    """Let nodes of bfloat16 that no kernel of stock's takes compute in float32; says whether there were any."""
    narrow = {
        node for node in nodes if any(v.dtype == ir.DataType.BFLOAT16 for v in (*node.inputs, *node.outputs) if v)
    }
    return bool(narrow) and OrtCast(narrow)(model).modified


class _Casts:
    """The casts of one graph; each is made once."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.made: list[ir.Node] = []
        self._known: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}

    def before(self, node: ir.Node, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """The value in another type, for `node` to read."""
        key = value, dtype
        if key not in self._known:
            self._known[key] = self._cast(node, value, dtype)
        return self._known[key]

    def back(self, node: ir.Node, wide: ir.Value, dtype: ir.DataType) -> ir.Value:
        """A result of a wider type in its own; a later node of the chain reads the wide one."""
        assert wide.dtype is not None
        narrow = self._cast(node, wide, dtype)
        if dtype in _FLOATS:
            self._known[narrow, wide.dtype] = wide
        return narrow

    def _cast(self, node: ir.Node, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        result = ir.Value(name=self.names.fresh("v"), type=ir.TensorType(dtype), shape=value.shape)
        cast = ir.Node(
            ONNX, "Cast", [value], [ir.AttrInt64("to", dtype.value)], outputs=[result], name=self.names.fresh("Cast")
        )
        cast.metadata_props.update(node.metadata_props)
        assert node.graph is not None
        node.graph.insert_before(node, cast)
        self.made.append(cast)
        return result


def _widened(node: ir.Node, opset: int, casts: _Casts) -> bool:
    schema = _schema(node, opset)
    types = _bound(node, schema) if schema is not None else None
    wider = substitutes(schema, types) if schema is not None and types else None
    if schema is None or not types or not wider:
        return False
    inputs = [
        casts.before(node, value, wider[formal])
        if value is not None and (formal := formal_of(schema, index)) in wider
        else value
        for index, value in enumerate(node.inputs)
    ]
    formals = [result_formal(schema, index) for index in range(len(node.outputs))]
    made = _again(node, inputs, [wider.get(formal) for formal in formals], casts.names)
    for old, new, formal in zip(node.outputs, made.outputs, formals, strict=True):
        replace_value(old, casts.back(node, new, types[formal]) if formal in wider else new)
    drop_unread([node])
    return True


def _schema(node: ir.Node, opset: int) -> onnx.defs.OpSchema | None:
    """Of a standard op that only its operands' types decide on."""
    inner = any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values())
    if node.domain != ONNX or node.op_type in _TYPED or inner:
        return None
    try:
        return onnx.defs.get_schema(node.op_type, opset)
    except onnx.defs.SchemaError:
        return None


def _bound(node: ir.Node, schema: onnx.defs.OpSchema) -> dict[str, ir.DataType] | None:
    """The type of each type variable, or None where one is not known."""
    types: dict[str, ir.DataType] = {}
    for index, value in enumerate(node.inputs):
        if value is None:
            continue
        if value.dtype is None or not isinstance(value.type, ir.TensorType | None):
            return None
        if types.setdefault(formal_of(schema, index), value.dtype) != value.dtype:
            return None
    return {name: dtype for name, dtype in types.items() if not name.startswith("tensor(")}


def _again(node: ir.Node, inputs: list[ir.Value | None], types: list[ir.DataType | None], names: Names) -> ir.Node:
    """The node with other inputs, and results of the given types where one is given."""
    outputs = [
        ir.Value(name=names.fresh("v"), type=old.type if dtype is None else ir.TensorType(dtype), shape=old.shape)
        for old, dtype in zip(node.outputs, types, strict=True)
    ]
    made = ir.Node(node.domain, node.op_type, inputs, list(node.attributes.values()), outputs=outputs, name=node.name)
    made.metadata_props.update(node.metadata_props)
    assert node.graph is not None
    node.graph.insert_before(node, made)
    return made
