"""What Triton kernels leave of the node suite's cases that the C backend takes whole.

Input: the cases of the installed onnx. Output: `LEFT` and `FAMILIES`, the lists that docs/gpu.md shows, and
`measure()`, which counts anew. Invariant: a case is left when a node of it stays with the provider; each has one such
op.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

from simulate import captured
from suite_run import cases

from smelt.codegen.c.backend import CBackend
from smelt.ir.load import load_model
from smelt.ops import analyze
from smelt.ops.registry import declarations
from smelt.partition import capture

PRODUCT = "a product: the GPU's own provider computes it"
CONVOLUTION = "a convolution: the GPU's own provider computes it"
POOL = "a pool: the GPU's own provider computes it"
FUNCTION = "a function in C, which runs on the CPU"

WHOLE_IN_C = 1361
LEFT = {
    ("MatMul", PRODUCT): 98,
    ("AveragePool", POOL): 20,
    ("Attention", PRODUCT): 18,
    ("Conv", CONVOLUTION): 17,
    ("MaxPool", POOL): 17,
    ("GridSample", FUNCTION): 15,
    ("ConvTranspose", CONVOLUTION): 11,
    ("Gemm", PRODUCT): 11,
    ("NonMaxSuppression", FUNCTION): 10,
    ("LpPool", POOL): 8,
    ("QLinearMatMul", PRODUCT): 8,
    ("ScatterElements", FUNCTION): 7,
    ("ScatterND", FUNCTION): 7,
    ("TopK", FUNCTION): 7,
    ("Unique", FUNCTION): 7,
    ("GRU", FUNCTION): 6,
    ("LSTM", FUNCTION): 6,
    ("RNN", FUNCTION): 6,
    ("Col2Im", FUNCTION): 5,
    ("Compress", FUNCTION): 5,
    ("RoiAlign", FUNCTION): 3,
    ("ConvInteger", CONVOLUTION): 2,
    ("Det", FUNCTION): 2,
    ("Scatter", FUNCTION): 2,
    ("Einsum", PRODUCT): 1,
    ("MatMulInteger", FUNCTION): 1,
    ("NonZero", FUNCTION): 1,
    ("QLinearConv", CONVOLUTION): 1,
}
# Cases by the family that decides: of the op that is left, or of a case's heaviest op. Those whose kernels are Triton's
# first; of the others the provider computes all.
FAMILIES = {
    "element-wise": (415, 0),
    "reductions": (290, 0),
    "softmax and normalizations": (74, 0),
    "data movement and shapes": (195, 22),
    "attention": (93, 18),
    "resizing and pools as loops": (24, 0),
    "einsum as loops": (8, 0),
}
OUTSIDE = {"matrix products": (119, 119), "convolutions": (31, 31), "pools": (45, 45), "functions in C": (67, 67)}
_MOVEMENT = ("Compress", "NonZero", "Scatter", "ScatterElements", "ScatterND")
_ATTENTION = ("Attention", "MultiHeadAttention", "GroupQueryAttention")
_BY_KIND = {  # heaviest first
    "product": "einsum as loops", "window": "resizing and pools as loops",
    "normalization": "softmax and normalizations", "reduction": "reductions", "movement": "data movement and shapes",
    "elementwise": "element-wise", "shape": "data movement and shapes",
}  # fmt: skip
_BY_REASON = {PRODUCT: "matrix products", CONVOLUTION: "convolutions", POOL: "pools", FUNCTION: "functions in C"}


def table() -> list[str]:
    return [f"| {op} | {count} | {reason} |" for (op, reason), count in LEFT.items()]


def family_table() -> list[str]:
    rows = [(name, *counts, "Triton kernels") for name, counts in FAMILIES.items()]
    rows += [(name, *counts, "the provider") for name, counts in OUTSIDE.items()]
    return [f"| {name} | {who} | {cases_} | {left} |" for name, cases_, left, who in rows]


def share_left() -> float:
    """Of the cases in the families that become Triton kernels."""
    return sum(left for _, left in FAMILIES.values()) / sum(count for count, _ in FAMILIES.values())


def measure() -> tuple[int, Counter[tuple[str, str]], dict[str, tuple[int, int]]]:
    """How many cases C takes whole, and what Triton leaves of them by op and reason, and by family."""
    whole, left, families = 0, Counter[tuple[str, str]](), dict[str, tuple[int, int]]()
    for case in cases().values():
        if not _is_whole_in_c(case.model()):
            continue
        whole += 1
        found = {(fallback.node.op_type, fallback.reason) for fallback in captured(case.model()).plan.fallbacks}
        left.update(found)
        name = family([node.op_type for node in load_model(case.model()).graph], sorted(found))
        count, missed = families.get(name, (0, 0))
        families[name] = count + 1, missed + bool(found)
    return whole, left, families


def family(ops: Sequence[str], left: Sequence[tuple[str, str]]) -> str:
    """Of a case with these ops, of which some are left."""
    if set(ops) & set(_ATTENTION):
        return "attention"
    if left:
        op, reason = left[0]
        return "data movement and shapes" if op in _MOVEMENT else _family_left(op, reason)
    kinds = {kind for op in ops for kind in _kinds().get(op, ())}
    return next(name for kind, name in _BY_KIND.items() if kind in kinds)


def _family_left(op: str, reason: str) -> str:
    return "matrix products" if op == "MatMulInteger" else _BY_REASON[reason]


@cache
def _kinds() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one in declarations():
        found.setdefault(one.name, set()).add(one.kind)
    return found


def _is_whole_in_c(model: Any) -> bool:
    loaded = load_model(model)
    facts = analyze(loaded)
    plan = capture(loaded, [CBackend(facts, list(loaded.graph.inputs))], force=True)
    return bool(plan.regions) and not plan.fallbacks
