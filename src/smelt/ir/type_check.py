"""Declared element types against the signatures of operators.

Input: a model whose nodes have the operands that their operators ask for. Output: nothing, or a ModelError that names
the node. Invariant: what passes declares no type that the standard forbids: a model that ONNX Runtime refuses for its
types is refused before any stage believes them. A type that nothing declares, and values that are no tensors, pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import onnx_ir as ir

from smelt.base.errors import ModelError
from smelt.ir.signature import Schema, node_error, opset_of, schema_of
from smelt.ir.walk import nested_graphs

_Types = dict[ir.Value, str]


def verify_types(model: ir.Model) -> None:
    """Check every input of the model, and every node of every graph and function."""
    for value in model.graph.inputs:
        if value.type is None and value.const_value is None:
            raise ModelError("SM-MODEL-007", f"the input {(value.name or '')[:80]!r} has no type")
    _verify(model.graph, model.opset_imports)
    for function in model.functions.values():
        _verify(function.graph, function.opset_imports or model.opset_imports)


def _verify(root: ir.Graph, opsets: Mapping[str, int]) -> None:
    version, known = opset_of(opsets), _Types()
    for graph in nested_graphs(root):
        for node in graph:
            schema = schema_of(node, version)
            if schema is not None:
                bound = dict[str, str]()
                _check_operands(node, schema, known, bound)
                _check_results(node, schema, known, bound)


def _check_operands(node: ir.Node, schema: Schema, known: _Types, bound: dict[str, str]) -> None:
    allowed, formals = _allowed(schema), _formals(schema, results=False, count=len(node.inputs))
    for place, (value, formal) in enumerate(zip(node.inputs, formals, strict=False)):
        found = _type_of(value, known) if value is not None and formal else ""
        if not found:
            continue
        if not _admits(allowed.get(formal, (formal,)), found):
            raise node_error(node, f"takes no {found} as its input {place}")
        if formal in allowed and bound.setdefault(formal, found) != found:
            raise node_error(node, f"takes inputs of one type, {bound[formal]} and {found} are declared")


def _check_results(node: ir.Node, schema: Schema, known: _Types, bound: Mapping[str, str]) -> None:
    allowed, formals = _allowed(schema), _formals(schema, results=True, count=len(node.outputs))
    for place, (value, formal) in enumerate(zip(node.outputs, formals, strict=False)):
        wanted = (bound[formal],) if formal in bound else allowed.get(formal, (formal,))
        found = _type_of(value, known) if formal else ""
        if found and not _admits(wanted, found):
            shown = wanted[0] if len(wanted) == 1 else "another type"
            raise node_error(node, f"gives {shown} as its output {place}, {found} is declared")
        if not found and formal in bound:
            known[value] = bound[formal]


def _admits(types: tuple[str, ...], found: str) -> bool:
    """bfloat16 passes wherever float does: kernels take it in opsets that do not know it yet."""
    return found in types or (found == "tensor(bfloat16)" and "tensor(float)" in types and len(types) > 1)


def _type_of(value: ir.Value, known: _Types) -> str:
    """As schemas spell it; empty where it is not known or no tensor."""
    if value.type is None:
        return known.get(value, "")
    return f"tensor({value.type.dtype.name.lower()})" if isinstance(value.type, ir.TensorType) else ""


@cache
def _allowed(schema: Schema) -> dict[str, tuple[str, ...]]:
    return {one.type_param_str: tuple(one.allowed_type_strs) for one in schema.type_constraints}


@cache
def _formals(schema: Schema, *, results: bool, count: int) -> tuple[str, ...]:
    """The type, or type variable, of each operand or result; empty where each of several has a type of its own."""
    formals = [*(schema.outputs if results else schema.inputs)]
    names = [one.type_str for one in formals]
    if formals and formals[-1].option == Schema.FormalParameterOption.Variadic:
        names[-1] = names[-1] if formals[-1].is_homogeneous else ""
        names += [names[-1]] * (count - len(names))
    return tuple(names)
