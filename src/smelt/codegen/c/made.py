"""Kernels of steps, and what a report tells of them.

Input: steps of a schedule. Output: `Kernel`, `KernelInfo`. Invariant: nothing here depends on how kernels are
launched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from smelt.codegen.cluster import BackToBack, Extern, Pack, SegmentCopy, Step
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


def kernel_of(step: Step) -> Kernel:
    kernel = _kernel_of(step)
    return kernel if kernel.form is not None else replace(kernel, form=form_of(step))


def _kernel_of(step: Step) -> Kernel:
    if isinstance(step, BackToBack):
        return write_b2b_gemm(build_nest(step.producer), step.kept, build_nest(step.consumer))
    match step.work:
        case Pack() as pack:
            return write_pack(pack)
        case Extern() as extern:
            return write_extern(extern)
        case SegmentCopy(rows):
            kernel = write_kernel(build_nest(step))
            return replace(kernel, units=kernel.units * fn("lt", GEMV_ROWS, rows))
        case _:
            return write_kernel(build_nest(step))


def sources_of(step: Step) -> tuple[str, ...]:
    links = (step.producer, step.consumer) if isinstance(step, BackToBack) else (step,)
    return tuple(dict.fromkeys(source for link in links for source in link.sources))


def info_of(kernel: Kernel, sources: tuple[str, ...], launch: int, *, tiled: bool) -> KernelInfo:
    """`tiled` kernels are stages of a launch that they share."""
    kind = "gemm" if kernel.product is not None else "window" if kernel.window is not None else "loops"
    kind = kind if kernel.extern is None else "function"
    form = kernel.form or KernelForm("", "")
    sizes = (f"{show(kernel.units)} units", show(kernel.flops), show(kernel.moved_bytes))
    made = None if tiled or kernel.extern is not None else launch_of(kernel)
    launcher, flags = (made.launcher, made.flags) if made is not None else ("", ())
    chosen = (launch, form.name, form.reason, launcher, flags, kernel.traits, form.micro_kernels)
    return KernelInfo(kernel.name, kind, sources, *sizes, *chosen)
