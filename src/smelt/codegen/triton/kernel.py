"""Records of the Triton backend: targets, configurations, kernels.

Input: nothing. Output: frozen dataclasses. Invariant: a kernel's arguments are its buffers, then its sizes, in the
order of the record; its last configuration has no condition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from smelt.codegen.c.emit import Kernel
from smelt.ir.kernel import Ix
from smelt.ir.kernel.device import Constant, DeviceLaunch

from .spelling import POINTER


@dataclass(frozen=True)
class GpuTarget:
    """`kind` and `arch` are Triton's; `ptx` asks for the text too, which later GPUs' drivers compile."""

    name: str
    kind: str
    arch: int | str
    warp: int
    ptx: bool = False

    @property
    def language(self) -> str:
        return "ptx" if self.kind == "cuda" else "amdgcn"


TARGETS: Final = (
    GpuTarget("sm_80", "cuda", 80, 32, ptx=True),
    GpuTarget("sm_86", "cuda", 86, 32),
    GpuTarget("sm_89", "cuda", 89, 32),
    GpuTarget("sm_90", "cuda", 90, 32),
    GpuTarget("sm_100", "cuda", 100, 32),
    GpuTarget("sm_120", "cuda", 120, 32),
    GpuTarget("gfx942", "hip", "gfx942", 64),
    GpuTarget("gfx1100", "hip", "gfx1100", 32),
)


@dataclass(frozen=True)
class Config:
    """One way to run a kernel: the function of its module, the block sizes, warps. `divisible` are the arguments that
    must be multiples of 16, `most_columns` the longest row that its block holds; 0: any. 0 stages: the compiler's own
    choice. `passes`: how often a program reads its rows."""

    function: str
    constants: tuple[tuple[str, Constant], ...]
    warps: int = 4
    divisible: tuple[int, ...] = ()
    most_columns: int = 0
    reason: str = ""
    single: bool = False
    stages: int = 0
    passes: int = 1

    @property
    def rows(self) -> int:
        """What a program takes of the rows that programs share out; one where a kernel counts its own programs."""
        if self.single:
            return 1
        sizes = {name: int(size or 0) for name, size in self.constants}
        return sizes.get("ROWS", sizes["BLOCK"])

    @property
    def block(self) -> int:
        """Columns, or elements, that a program takes at a time."""
        sizes = {name: size for name, size in self.constants if isinstance(size, int)}
        return sizes.get("BLOCK", 1)

    def __str__(self) -> str:
        sizes = " ".join(f"{name}={value}" for name, value in self.constants)
        limits = f" columns<={self.most_columns}" if self.most_columns else ""
        return f"{sizes} warps={self.warps}{' aligned' if self.divisible else ''}{limits}"


@dataclass(frozen=True)
class Argument:
    """Of a user's function: a pointer is the buffer at `place` and `value` bytes, a size a `value`; else a number."""

    name: str
    type: str
    place: int = -1
    value: Ix | None = None
    number: float | None = None


@dataclass(frozen=True)
class TritonKernel(Kernel):
    """`text` is a whole Python module, `sizes` are its arguments behind the buffers. `rows` and `columns` are what
    programs share out, and the longest row. A function of the user's has its `arguments` in its own order, and its own
    `grid`."""

    sizes: tuple[Ix, ...] = ()
    rows: Ix = field(default_factory=lambda: Ix(()))
    columns: Ix = field(default_factory=lambda: Ix(()))
    configs: tuple[Config, ...] = ()
    wide: bool = False
    arguments: tuple[Argument, ...] = ()
    grid: tuple[Ix, Ix, Ix] | None = None
    user: DeviceLaunch | None = None

    @property
    def signature(self) -> dict[str, str]:
        """Triton's types of the arguments, without constants."""
        if self.arguments:
            return {one.name: one.type for one in self.arguments}
        pointers = {f"b{place}": POINTER[buffer.dtype] for place, buffer in enumerate(self.buffers)}
        kind = "i64" if self.wide else "i32"
        return pointers | {f"s{place}": kind for place in range(len(self.sizes))}
