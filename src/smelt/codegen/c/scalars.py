"""Scalars that may come as one element of rank 1.

Input: a region. Output: the inputs of rank 0 for which it makes no difference. Invariant: stock ONNX Runtime does not
check the shape of an input that a file declares as a scalar, and people feed `[x]`. The results are the same where each
op that reads such an input broadcasts it against a tensor with axes; a result of rank 0 would get an axis.
"""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from smelt.ir.records import Region
from smelt.ops import Facts, lookup

_SCALARS_ONLY: Final = frozenset(("Clip",))  # their shape is checked by stock


def loose_scalars(region: Region, facts: Facts) -> frozenset[ir.Value]:
    known = facts.by_value
    scalars = [v for v in region.inputs if v in known and not known[v].shape and v not in facts.constants]
    return frozenset(v for v in scalars if v.const_value is None and _is_broadcast(v, region, facts))


def _is_broadcast(value: ir.Value, region: Region, facts: Facts) -> bool:
    """Whether all that follows from it inside has the shape of something else."""
    scalars = {value}
    for node in region.nodes:
        if scalars.isdisjoint(v for v in node.inputs if v is not None):
            continue
        if not _is_elementwise(node, facts):
            return False
        scalars.update(v for v in node.outputs if v not in facts.by_value or not facts.by_value[v].shape)
    return scalars.isdisjoint(region.outputs)


def _is_elementwise(node: ir.Node, facts: Facts) -> bool:
    domain = "" if node.domain == "ai.onnx" else node.domain
    found = lookup(domain, node.op_type, facts.opsets.get(domain, 1))
    return found is not None and found.kind == "elementwise" and node.op_type not in _SCALARS_ONLY
