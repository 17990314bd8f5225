"""What Triton kernels leave of the node suite's cases that the C backend takes whole.

Input: the cases of the installed onnx. Output: `LEFT`, the list that docs/gpu.md shows, and `measure()`,
which counts anew. Invariant: a case is left when a node of it stays with the provider; each has one such op.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from simulate import captured
from suite_run import cases

from smelt.codegen.c.backend import CBackend
from smelt.ir.load import load_model
from smelt.ops import analyze
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
# Data movement and attention, which are Triton's to compute; all others are products, windows and functions.
OWED = ("Attention", "Compress", "NonZero", "Scatter", "ScatterElements", "ScatterND")


def table() -> list[str]:
    return [f"| {op} | {count} | {reason} |" for (op, reason), count in LEFT.items()]


def share_left() -> float:
    """Of the cases in the families that become Triton kernels."""
    owed = sum(count for (op, _), count in LEFT.items() if op in OWED)
    return owed / (WHOLE_IN_C - sum(LEFT.values()) + owed)


def measure() -> tuple[int, Counter[tuple[str, str]]]:
    """How many cases C takes whole, and what Triton leaves of them by op and reason."""
    whole, left = 0, Counter[tuple[str, str]]()
    for case in cases().values():
        if not _is_whole_in_c(case.model()):
            continue
        whole += 1
        left.update({(fallback.node.op_type, fallback.reason) for fallback in captured(case.model()).plan.fallbacks})
    return whole, left


def _is_whole_in_c(model: Any) -> bool:
    loaded = load_model(model)
    facts = analyze(loaded)
    plan = capture(loaded, [CBackend(facts, list(loaded.graph.inputs))], force=True)
    return bool(plan.regions) and not plan.fallbacks
