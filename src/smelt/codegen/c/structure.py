"""What makes two regions the same program over different values.

Input: a region and the facts. Output: a key, and the values at the region's border in the order in which the key counts
them. Invariant: regions with equal keys have equal code, up to the substitution of border values.
"""

from __future__ import annotations

import hashlib

import onnx_ir as ir

from smelt.ir.direct import is_direct
from smelt.ir.records import Region
from smelt.ir.weights import is_packable
from smelt.ops import Facts

from .layout import has_half_scales


def structure(region: Region, facts: Facts) -> tuple[str, tuple[ir.Value, ...]]:
    """Nodes in order, each operand as an earlier node's result or as a border value with all that is known of it."""
    number: dict[ir.Value, str] = {}
    border: list[ir.Value] = []
    parts: list[str] = []
    for place, node in enumerate(region.nodes):
        operands: list[str] = []
        for value in node.inputs:
            if value is not None and value not in number:
                number[value] = f"b{len(border)}"
                border.append(value)
                operands.append(f"{number[value]}:{_known(value, facts)}")
            else:
                operands.append("-" if value is None else number[value])
        number.update({v: f"n{place}.{k}" for k, v in enumerate(node.outputs)})
        parts.append(
            f"{node.domain}|{node.op_type}|{_attributes(node)}|{','.join(operands)}|{len(node.outputs)}|{is_direct(node):d}"
        )
    parts.append(",".join(number.get(v, "?") for v in region.outputs))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest(), tuple(border)


def _known(value: ir.Value, facts: Facts) -> str:
    fact = facts.by_value.get(value)
    if fact is None:
        return "?"
    contents = "" if fact.contents is None else ";".join(c.key for c in fact.contents)
    constant = facts.constants.get(value)
    literal = "" if constant is None else repr(constant.contents)
    packable = "c" if is_packable(value) else ""
    packable += "h" if packable and has_half_scales(value) else ""
    return f"{fact.dtype}[{';'.join(s.key for s in fact.shape)}]{contents}={literal}{packable}"


def _attributes(node: ir.Node) -> str:
    return ";".join(f"{name}={_attribute(node.attributes[name])}" for name in sorted(node.attributes))


def _attribute(attribute: ir.Attr) -> str:
    value = attribute.value
    if attribute.type == ir.AttributeType.TENSOR:
        return f"{value.dtype}{value.shape}{hashlib.sha256(value.tobytes()).hexdigest()}"
    return repr(value)
