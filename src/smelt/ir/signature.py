"""Nodes against the signatures of their operators.

Input: a model in which every value is defined. Output: nothing, or a ModelError that names the node. Invariant: what
passes gives every operator of the standard the operands and attributes that it requires, of the kinds it requires, so
that no later stage has to doubt it; operators that the standard does not know are let through.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import cache
from typing import cast

import onnx
import onnx_ir as ir

from smelt.base.errors import ModelError
from smelt.ir.walk import nested_graphs

Schema = onnx.defs.OpSchema


def verify_signatures(model: ir.Model) -> None:
    """Check every node of every graph and function."""
    _verify(model.graph, model.opset_imports)
    for function in model.functions.values():
        _verify(function.graph, function.opset_imports or model.opset_imports)


def _verify(root: ir.Graph, opsets: Mapping[str, int]) -> None:
    version = opset_of(opsets)
    for graph in nested_graphs(root):
        for node in graph:
            schema = schema_of(node, version)
            if schema is not None:
                _check(node, schema)


def opset_of(opsets: Mapping[str, int]) -> int:
    """The version of the standard's own operators."""
    return opsets.get("", opsets.get("ai.onnx", 0))


def schema_of(node: ir.Node, version: int) -> Schema | None:
    """None for an operator that the standard does not know."""
    return _schema(node.op_type, version) if node.domain in ("", "ai.onnx") else None


@cache
def _schema(op_type: str, version: int) -> Schema | None:
    # A name that is not ASCII or very long is no operator, and the lookup may not take it.
    if version < 1 or not op_type.isidentifier() or len(op_type) > 100:
        return None
    try:
        return onnx.defs.get_schema(op_type, version, "")
    except onnx.defs.SchemaError:
        return None


def _check(node: ir.Node, schema: Schema) -> None:
    _check_count(node, "inputs", len(node.inputs), schema.min_input, schema.max_input)
    _check_count(node, "outputs", len(node.outputs), schema.min_output, schema.max_output)
    for value, formal in zip(node.inputs, schema.inputs, strict=False):
        if value is None and formal.option == Schema.FormalParameterOption.Single:
            raise node_error(node, f"needs its input {formal.name!r}")
    _check_attributes(node, schema)


def _check_count(node: ir.Node, what: str, count: int, least: int, most: int) -> None:
    if not least <= count <= most:
        span = str(least) if least == most else f"{least} to {most}" if most < 1 << 30 else f"at least {least}"
        raise node_error(node, f"has {count} {what}, {span} are expected")


def _check_attributes(node: ir.Node, schema: Schema) -> None:
    for name, declared in schema.attributes.items():
        given = node.attributes.get(name)
        if given is None:
            if declared.required:
                raise node_error(node, f"needs its attribute {name!r}")
        elif (wanted := _kind(declared)) != given.type:
            raise node_error(node, f"has the attribute {name!r} as {given.type.name}, {wanted.name} is expected")


def _kind(declared: onnx.defs.OpSchema.Attribute) -> ir.AttributeType:
    # The binding's stubs do not say that it is an enumeration.
    return ir.AttributeType(int(cast("IntEnum", declared.type).value))


def node_error(node: ir.Node, what: str) -> ModelError:
    """What does not fit at a node, with a name that finds it."""
    names: Iterable[str] = (node.name or "", *(value.name or "" for value in node.outputs), "(no name)")
    shown = next(name for name in names if name)
    return ModelError("SM-MODEL-009", f"{node.op_type} {what}", node=shown[:80])
