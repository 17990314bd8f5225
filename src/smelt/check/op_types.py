"""What kinds of ops a region or a model has, for the contract.

Input: nodes. Output: names of op types. Invariant: a step that is taken by integers or truth values alone is not named:
there is no rounding before it that could decide it.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from smelt.check.contract import STEPS


def op_types_of(nodes: Iterable[ir.Node]) -> list[str]:
    """Each once, in order."""
    return sorted({node.op_type for node in nodes if node.op_type not in STEPS or _may_round(node)})


def _may_round(node: ir.Node) -> bool:
    return any(v is not None and (v.dtype is None or v.dtype.is_floating_point()) for v in node.inputs)
