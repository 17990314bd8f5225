"""Whether native kernels can pay for their compilation.

Input: an FX graph with the sizes it was traced with. Output: yes or no. Invariant: only a graph whose whole work is
small compared with the cost of a call is refused; everything else is decided by the pipeline's own cost rules.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final, cast

import torch
from torch.fx import GraphModule

from smelt.frontends.torch_compile._torch import hint

SMALL_WORK: Final = 200_000  # multiplications or elements: some tens of microseconds
TRAINING_WORK: Final = 100_000_000  # some milliseconds: code for a graph with its gradients takes longer to compile
TRAINING_NODES: Final = 1600  # twelve layers of BERT: 1300 with their gradients, a minute or two to compile and verify
_UNKNOWN_SIZE: Final = 128


def kernels_pay(module: GraphModule, kind: str = "inference") -> bool:
    """Compiling costs seconds: a graph of a few small operations is left to plain ONNX Runtime."""
    if kind == "inference":
        return work_of(module) >= SMALL_WORK
    nodes = sum(node.op == "call_function" for node in module.graph.nodes)
    return nodes <= TRAINING_NODES and work_of(module) >= TRAINING_WORK


def work_of(module: GraphModule) -> int:
    """Elements made, and multiplications of matrix products, for the sizes seen in tracing."""
    return sum(_work(node) for node in module.graph.nodes if node.op == "call_function")


def _work(node: torch.fx.Node) -> int:
    made = _elements(node.meta.get("val"))
    name = str(node.target)
    if any(word in name for word in ("mm.", "addmm", "linear", "matmul")):
        depth = _shape(node.args[-1].meta.get("val") if isinstance(node.args[-1], torch.fx.Node) else None)
        return made * (depth[0] if depth else 1)
    if "convolution" in name or "attention" in name:
        return made * 64
    return made


def _elements(value: Any) -> int:
    if isinstance(value, (tuple, list)):
        return sum(_elements(v) for v in cast("list[Any]", value))
    return prod(_shape(value)) if isinstance(value, torch.Tensor) else 0


def _shape(value: Any) -> list[int]:
    if not isinstance(value, torch.Tensor):
        return []
    return [hint(s, _UNKNOWN_SIZE) for s in value.shape]
