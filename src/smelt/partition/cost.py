"""What a region costs and whether it can pay.

Input: a region. Output: a Cost (bytes are per run, with symbolic dims at a nominal size), and a Claim that refuses
regions which cannot gain: nothing but views, one cheap node alone, one data-moving node alone. Invariant: the
answer depends on the region only, never on the machine; measured decisions are taken later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from smelt.ir.records import Claim, Region

NOMINAL_DIM = 128

VIEWS = frozenset(
    (
        "Reshape",
        "Flatten",
        "Squeeze",
        "Unsqueeze",
        "Identity",
        "Shape",
        "Size",
        "Constant",
        "Dropout",
        "ConstantOfShape",
    )
)
MOVERS = frozenset(
    (
        "Transpose", "Concat", "Split", "Slice", "Gather", "GatherElements", "GatherND", "Expand", "Tile", "Pad",
        "Trilu", "Range", "DepthToSpace", "SpaceToDepth", "ReverseSequence", "EyeLike", "OneHot", "ScatterND",
        "ScatterElements",
    )
)  # fmt: skip
HEAVY = frozenset(
    (
        "MatMul", "Gemm", "FusedMatMul", "FusedGemm", "Conv", "FusedConv", "Attention", "MultiHeadAttention",
        "GroupQueryAttention", "MatMulInteger", "Softmax", "LogSoftmax", "Hardmax",
        "LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization",
        "SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "EmbedLayerNormalization",
        "GroupNormalization", "InstanceNormalization", "BatchNormalization", "LpNormalization",
        "MeanVarianceNormalization", "LSTM", "GRU", "RNN", "Gelu", "FastGelu", "QuickGelu", "BiasGelu", "CumSum",
    )
)  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """Bytes that cross the border, bytes that no longer go through memory, and the arithmetic inside."""

    border_bytes: int
    saved_bytes: int
    flops: int
    views: int
    movers: int
    heavy: int
    nodes: int

    @property
    def cheap(self) -> int:
        return self.nodes - self.views - self.movers - self.heavy


def estimate(region: Region) -> Cost:
    """Count a region's nodes by kind and its memory traffic."""
    kinds = [node.op_type for node in region.nodes]
    heavy = sum(_is_heavy(node) for node in region.nodes)
    border = set(region.outputs)
    inner = [v for node in region.nodes for v in node.outputs if v not in border]
    views = sum(kind in VIEWS for kind in kinds)
    return Cost(
        border_bytes=_bytes(region.inputs) + _bytes(region.outputs),
        saved_bytes=2 * _bytes(inner),
        flops=sum(_flops(node) for node in region.nodes),
        views=views,
        movers=sum(kind in MOVERS for kind in kinds),
        heavy=heavy,
        nodes=len(kinds),
    )


def _is_heavy(node: ir.Node) -> bool:
    """Worth a region of its own: among others what ONNX Runtime does pixel by pixel."""
    if node.op_type in HEAVY or (node.op_type == "MaxPool" and len(node.outputs) > 1):
        return True
    mode = node.attributes.get("mode") if node.op_type == "Resize" else None
    return mode is not None and not mode.is_ref() and mode.value == "cubic"


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
    """Stock ONNX Runtime moves bfloat16, and computes nothing in it."""
    computed = [n for n in region.nodes if n.op_type not in VIEWS and n.op_type not in MOVERS and n.op_type != "Cast"]
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


def _flops(node: ir.Node) -> int:
    if node.op_type in VIEWS or node.op_type in MOVERS:
        return 0
    out = max((element_count(value) for value in node.outputs), default=0)
    if node.op_type not in ("MatMul", "Gemm", "FusedMatMul", "FusedGemm", "MatMulInteger"):
        sources = (element_count(value) for value in node.inputs if value is not None)
        return max(out, max(sources, default=0))
    left = node.inputs[0]
    depth = left.shape[-1] if left is not None and left.shape else NOMINAL_DIM
    return 2 * out * (depth if isinstance(depth, int) else NOMINAL_DIM)
