"""What kinds of ops a region or a model has, for the contract.

Input: nodes, each behind those that it reads from. Output: names of op types. Invariant: a step is named only where a
rounding before it could decide it: not one that is taken by integers or truth values, nor a cast to float32 or float64.
Element types that the file does not tell follow from the ops' schemas; a type that is not known may round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import onnx
import onnx_ir as ir

from smelt.check.contract import STEPS
from smelt.ir.ort_kernels import formal_of, result_formal

_T: Final = ir.DataType
_WIDE: Final = (_T.FLOAT, _T.DOUBLE)
_NAMED: Final = {"tensor(bool)": _T.BOOL, "tensor(int64)": _T.INT64, "tensor(int32)": _T.INT32}
_Types = dict[ir.Value, ir.DataType]


def op_types_of(nodes: Iterable[ir.Node]) -> list[str]:
    """Each once, in order."""
    types: _Types = {}
    found: set[str] = set()
    for node in nodes:
        if node.op_type not in STEPS or _may_round(node, types):
            found.add(node.op_type)
        for place, value in enumerate(node.outputs):
            dtype = value.dtype or result_type(node, place, types)
            if dtype is not None:
                types[value] = dtype
    return sorted(found)


def _may_round(node: ir.Node, types: _Types) -> bool:
    if node.op_type == "Cast" and _cast_to(node) in _WIDE:
        return False
    known = [_type_of(value, types) for value in node.inputs if value is not None]
    return any(dtype is None or dtype.is_floating_point() for dtype in known)


def _type_of(value: ir.Value, types: Mapping[ir.Value, ir.DataType]) -> ir.DataType | None:
    known = value.dtype or types.get(value)
    return value.const_value.dtype if known is None and value.const_value is not None else known


def _cast_to(node: ir.Node) -> ir.DataType | None:
    target = node.attributes.get("to")
    return None if target is None or target.is_ref() else ir.DataType(target.as_int())


def result_type(node: ir.Node, place: int, types: _Types) -> ir.DataType | None:
    """By the schema: a type of its own, or that of an operand which shares its type variable."""
    if node.op_type == "Cast" and not node.domain:
        return _cast_to(node)
    try:
        schema = onnx.defs.get_schema(node.op_type, node.domain)
    except onnx.defs.SchemaError:
        return None
    formal = result_formal(schema, place)
    alike = (v for i, v in enumerate(node.inputs) if v is not None and formal_of(schema, i) == formal)
    allowed = next((c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == formal), [formal])
    if len(allowed) == 1:
        return _NAMED.get(allowed[0])
    return next((dtype for v in alike if (dtype := _type_of(v, types)) is not None), None)
