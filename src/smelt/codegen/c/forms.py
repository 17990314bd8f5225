"""Which kernel form a cluster became, for reports.

Input: clusters of a schedule. Output: `KernelForm`, or None for plain loops. Invariant: nothing depends on it; what was
chosen where a tensor was given its layout says why itself, what the scheduler chose is told here.
"""

from __future__ import annotations

from typing import Final

from smelt.codegen.cluster import Cluster
from smelt.codegen.kernel_forms import KernelForm, PackedContraction, WindowKernel

_PACK: Final = KernelForm("pack", "a right operand that comes at run time is packed into panels before its product")
_FUNCTION: Final = KernelForm("function", "no loop nest states it: a function written in C")
_BACK_TO_BACK: Final = KernelForm(
    "back-to-back GEMM", "the second product reads the rows of the first in the task that makes them"
)
_UNPACKED: Final = KernelForm(
    "GEMM, unpacked", "all rows share a matrix that comes at run time: tasks pack what they use"
)
_RUN_TIME: Final = KernelForm("GEMM, packed at run time", "batches have matrices of their own, which come at run time")


def form_of(cluster: Cluster, consumer: Cluster | None) -> KernelForm | None:
    if cluster.pack is not None:
        return _PACK
    if cluster.extern is not None:
        return _FUNCTION
    if consumer is not None and cluster.kept is not None:
        return _BACK_TO_BACK
    if cluster.matmul is None:
        return None
    made = cluster.matmul.definition
    if isinstance(made, PackedContraction):
        return KernelForm("GEMM, packed ahead of time", made.reason)
    if isinstance(made, WindowKernel):
        return KernelForm(f"{made.pool} pool" if made.pool else f"convolution, {made.form}", made.reason)
    return _UNPACKED if cluster.matrices is not None else _RUN_TIME
