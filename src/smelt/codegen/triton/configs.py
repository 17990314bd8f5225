"""Which blocks a kernel may have.

Input: what programs share out, and the arguments. Output: configurations, the preferred one first. Invariant: the last
one holds for every call; of those that hold a launch takes the one that its cost model says. A block has at most
MOST_ELEMENTS elements, which registers hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from smelt.ir.kernel import Ix, of

from .kernel import Config

MOST_ELEMENTS: Final = 8192
WHOLE_COLUMNS: Final = 4096
SYMBOLIC_COLUMNS: Final = 1024
COLUMN_BLOCK: Final = 1024
FEW_ELEMENTS: Final = 256


def aligned_arguments(size: Ix, sizes: Sequence[Ix], pointers: int) -> tuple[int, ...]:
    """The arguments that must be multiples of 16 for vector loads along so many elements: pointers, and the sizes
    that alone decide whether the size is a multiple of 16."""
    loose = {of(atom) for monomial, scale in size.terms if scale % 16 for atom in monomial}
    return tuple(range(min(pointers, 64))) + tuple(
        pointers + place for place, one in enumerate(sizes) if one in loose and pointers + place < 64
    )


def flat_configs(name: str, aligned: tuple[int, ...]) -> tuple[Config, ...]:
    """Elements by themselves."""
    fast = Config(f"{name}_flat", (("BLOCK", 1024),), 4, aligned, reason="vector loads")
    return fast, Config(f"{name}_flat", (("BLOCK", FEW_ELEMENTS),), 2, reason="few elements, any alignment")


def row_configs(
    name: str, columns: Ix, aligned: tuple[int, ...], *, across: bool, passes: int = 1
) -> tuple[Config, ...]:
    """Rows with reductions. `across`: neighbours in memory are of different rows; `passes`: how often rows that do not
    fit registers are read."""
    known = columns.const
    looped = (("ROWS", 64), ("BLOCK", 16)) if across else (("ROWS", 1), ("BLOCK", COLUMN_BLOCK))
    ends = (
        Config(f"{name}_looped", looped, 4, aligned, reason="rows in blocks, vector loads", passes=passes),
        Config(f"{name}_looped", looped, 4, reason="rows in blocks, any alignment", passes=passes),
    )
    if across or (known is not None and known > WHOLE_COLUMNS):
        return ends
    if known is not None:
        sizes = whole_sizes(known)
        single = (("ROWS", 1), sizes[1])
        return (
            Config(f"{name}_whole", sizes, warps_for(sizes), aligned, reason="rows in registers, vector loads"),
            Config(f"{name}_whole", single, warps_for(single), reason="a row in registers, few rows, any alignment"),
        )
    sizes = whole_sizes(SYMBOLIC_COLUMNS)
    whole = Config(f"{name}_whole", sizes, warps_for(sizes), aligned, SYMBOLIC_COLUMNS, "short rows in registers")
    return whole, *ends


def scan_configs(name: str) -> tuple[Config, ...]:
    return (Config(f"{name}_looped", (("ROWS", 4), ("BLOCK", 256)), 4, reason="blocks of a scan in order"),)


def whole_sizes(columns: int) -> tuple[tuple[str, int], ...]:
    """A block for rows of so many columns: as many rows as make 1024 elements."""
    block = max(16, 1 << (max(columns, 1) - 1).bit_length())
    return (("ROWS", max(1, 1024 // block)), ("BLOCK", block))


def warps_for(sizes: Sequence[tuple[str, int]]) -> int:
    elements = 1
    for _, size in sizes:
        elements *= size
    if elements <= 512:
        return 1 if elements <= 128 else 2
    return 4 if elements <= 2048 else 8 if elements <= 4096 else 16
