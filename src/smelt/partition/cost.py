"""What a region costs and whether it can pay.

Input: a region. Output: a Cost (bytes are per run, with symbolic dims at a nominal size), and a Claim that refuses
regions which cannot gain: nothing but views, one cheap node alone, one data-moving node alone. Invariant: the
answer depends on the region only, never on the machine; measured decisions are taken later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from smelt.ir.records import Claim, Region
from smelt.ops import cost_of
from smelt.ops.user import is_user_op

NOMINAL_DIM = 128


@dataclass(frozen=True)
class Cost:
    """Bytes that cross the border, bytes that no longer go through memory, and the nodes by what they cost."""

    border_bytes: int
    saved_bytes: int
    views: int
    movers: int
    heavy: int
    nodes: int

    @property
    def cheap(self) -> int:
        return self.nodes - self.views - self.movers - self.heavy


def estimate(region: Region) -> Cost:
    """Count a region's nodes by what their declarations say they cost, and its memory traffic."""
    counts = Counter(cost_of(node) for node in region.nodes)
    border = set(region.outputs)
    inner = [v for node in region.nodes for v in node.outputs if v not in border]
    return Cost(
        border_bytes=_bytes(region.inputs) + _bytes(region.outputs),
        saved_bytes=2 * _bytes(inner),
        views=counts["view"],
        movers=counts["move"],
        heavy=counts["heavy"],
        nodes=len(region.nodes),
    )


def pays(region: Region) -> Claim:
    """Refuse what cannot win over the nodes as they are; a yes is left for the backend to confirm."""
    cost = estimate(region)
    if cost.heavy or _only_in_kernels(region):
        return Claim(True)
    if cost.views == cost.nodes:
        return Claim(False, "only changes shapes: nothing to compute")
    if cost.cheap + cost.movers == 1:
        kind = "moves data" if cost.movers else "is one cheap operation"
        return Claim(False, f"alone: {kind}, and has nothing to fuse with")
    return Claim(True)


def _only_in_kernels(region: Region) -> bool:
    """Stock ONNX Runtime moves bfloat16, and computes nothing in it; ops of the user's own it does not know."""
    if any(is_user_op(node) for node in region.nodes):
        return True
    computed = [n for n in region.nodes if cost_of(n) not in ("view", "move") and n.op_type != "Cast"]
    return any(v.dtype == ir.DataType.BFLOAT16 for n in computed for v in (*n.inputs, *n.outputs) if v is not None)


def element_count(value: ir.Value) -> int:
    """Elements of the value, taking a nominal size for dims that are not known."""
    if value.shape is None:
        return NOMINAL_DIM
    count = 1
    for dim in value.shape:
        count *= dim if isinstance(dim, int) else NOMINAL_DIM
    return count


def _bytes(values: Iterable[ir.Value]) -> int:
    return sum(element_count(value) * _item_bits(value) // 8 for value in values)


def _item_bits(value: ir.Value) -> int:
    dtype = value.dtype
    if dtype is None or dtype in (ir.DataType.UNDEFINED, ir.DataType.STRING):
        return 32
    return dtype.bitwidth
