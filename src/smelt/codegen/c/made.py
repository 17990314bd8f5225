"""Kernels of clusters, and what a report tells of them.

Input: clusters of a schedule. Output: `Kernel`, `KernelInfo`. Invariant: nothing here depends on how kernels are
launched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from smelt.codegen.cluster import Cluster
from smelt.codegen.kernel_forms import KernelForm
from smelt.codegen.loops import build as build_nest
from smelt.codegen.shared_panels import GEMV_ROWS
from smelt.ir.kernel import Buffer, Ix, fn, show
from smelt.ir.records import KernelInfo

from .emit import Kernel, write_b2b_gemm, write_kernel
from .extern import write_extern
from .forms import form_of
from .launch import launch_of
from .packed_operand import write_pack


def panels_after(kernels: Sequence[Kernel]) -> dict[int, tuple[Buffer, Ix]]:
    """By kernel: the constant operand that is read next after its own."""
    found: dict[int, tuple[Buffer, Ix]] = {}
    coming: tuple[Buffer, Ix] | None = None
    for kernel in reversed(kernels):
        if coming is not None:
            found[id(kernel)] = coming
        coming = kernel.first_panels or coming
    return found


def kernel_of(cluster: Cluster, consumer: Cluster | None) -> Kernel:
    return replace(_kernel_of(cluster, consumer), form=form_of(cluster, consumer))


def _kernel_of(cluster: Cluster, consumer: Cluster | None) -> Kernel:
    if cluster.pack is not None:
        return write_pack(cluster.pack)
    if cluster.extern is not None:
        return write_extern(cluster.extern)
    if consumer is not None and cluster.kept is not None:
        return write_b2b_gemm(build_nest(cluster), cluster.kept, build_nest(consumer))
    kernel = write_kernel(build_nest(cluster))
    if cluster.unless_gemv is None:
        return kernel
    return replace(kernel, units=kernel.units * fn("lt", GEMV_ROWS, cluster.unless_gemv))


def sources_of(cluster: Cluster, consumer: Cluster | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*cluster.sources, *(consumer.sources if consumer is not None else ()))))


def info_of(kernel: Kernel, sources: tuple[str, ...], launch: int, *, tiled: bool) -> KernelInfo:
    """`tiled` kernels are stages of a launch that they share."""
    kind = "gemm" if kernel.product is not None else "window" if kernel.window is not None else "loops"
    kind = kind if kernel.extern is None else "function"
    form = kernel.form or KernelForm("", "")
    sizes = (f"{show(kernel.units)} units", show(kernel.flops), show(kernel.moved_bytes))
    made = None if tiled or kernel.extern is not None else launch_of(kernel)
    launcher, flags = (made.launcher, made.flags) if made is not None else ("", ())
    return KernelInfo(kernel.name, kind, sources, *sizes, launch, form.name, form.reason, launcher, flags)
