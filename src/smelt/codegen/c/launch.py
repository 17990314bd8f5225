"""How a kernel is launched: which launcher of the headers runs its tasks, and with what.

Input: a `Kernel`. Output: `Launch`. Invariant: a launch is a record, which becomes text in one place; reports and
settings read the record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from smelt.ir.kernel import Ix, ix

from .emit import Kernel
from .product import ProductSizes

# Launchers that are compiled apart, by the library's unit; others are inline functions of loop.h and loop_gemm.h.
_UNITS: Final = {
    "smelt_launch_gemm": "launch_gemm",
    "smelt_launch_b2b_gemm": "launch_b2b_gemm",
    "smelt_launch_b2b_online_softmax": "launch_b2b_gemm",
    "smelt_launch_gemm_mlp": "launch_b2b_gemm",
    "smelt_launch_window": "launch_window",
    "smelt_launch_winograd": "launch_window",
    "smelt_launch_square": "launch_window",
}


@dataclass(frozen=True)
class Launch:
    """The launcher's numbers, then its flags. The first two numbers of loops that are `chunked` are the units along the
    other axes and the cost of an element: the size of the vectorized axis and the elements that a unit takes of it."""

    launcher: str
    numbers: tuple[Ix, ...]
    flags: tuple[str, ...] = ()
    chunked: tuple[Ix, int] | None = None

    def call(self, task: str, kernel: str, spell: Callable[[Ix], str]) -> str:
        """As a call in C."""
        numbers = [spell(number) for number in self.numbers]
        if self.chunked is not None:
            wide, chunk = spell(self.chunked[0]), self.chunked[1]
            numbers[0] = _chunks(numbers[0], wide, chunk)
            numbers[1] = f"({numbers[1]}) * smelt_min({chunk}, {wide})"
        return f"{self.launcher}({', '.join((f'&{task}', f'SMELT_NAME({kernel})', *numbers, *self.flags))})"


def links_of(kernel: Kernel) -> frozenset[str]:
    """Units of the library that a kernel and its launch call."""
    launcher = "" if kernel.extern is not None else launch_of(kernel).launcher
    return kernel.links | {_UNITS[launcher]} if launcher in _UNITS else kernel.links


def units_text(kernel: Kernel, spell: Callable[[Ix], str]) -> str:
    """How many units of work there are."""
    units = spell(kernel.units)
    return units if kernel.chunked is None else _chunks(units, spell(kernel.chunked[0]), kernel.chunked[1])


def _chunks(units: str, wide: str, chunk: int) -> str:
    return f"({units}) * ((({wide}) + {chunk} - 1) / {chunk})"


def launch_of(kernel: Kernel) -> Launch:
    window, rows = kernel.window, kernel.row_sizes
    if window is not None:
        return Launch(window.launch, window.numbers, window.wants)
    if kernel.product is not None:
        return _launch_of_product(kernel.product, rows.middle if rows is not None else ix(0))
    if rows is not None:
        return Launch("smelt_launch_pack", (kernel.units, kernel.unit_cost, rows.batches, rows.rows))
    return Launch("smelt_launch", (kernel.units, kernel.unit_cost, kernel.row_bytes), chunked=kernel.chunked)


def _launch_of_product(made: ProductSizes, middle: Ix) -> Launch:
    if made.b2b is None:
        how = f"{made.wants} | SMELT_UNPACKED" if made.unpacked else made.wants
        how = f"{how} | SMELT_HALVED" if made.halved else how
        sizes = (made.batches, made.rows, made.columns, made.depth, made.extra_bytes)
        return Launch("smelt_launch_gemm", sizes, (how, str(made.copies)))
    if made.by_rows:
        return Launch("smelt_launch_gemm_mlp", (made.rows, made.b2b, made.extra_bytes))
    sizes = (made.batches, made.rows, made.columns, made.b2b)
    if made.buffers is not None:
        more = (ix(made.buffers), made.extra_bytes, made.group, middle)
        return Launch("smelt_launch_b2b_online_softmax", (*sizes, *more))
    return Launch("smelt_launch_b2b_gemm", (*sizes, made.extra_bytes, made.group, middle))
