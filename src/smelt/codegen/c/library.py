"""Units that no model changes: the kernels that generated code calls, compiled once per compiler and CPU level.

Input: the texts of generated kernels. Output: the units that define what they call, and what those call in turn.
Invariant: a unit's text is one include of a header `<name>_unit.h`, so its object is found in the cache whatever the model is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from smelt.ir.records import Unit


@dataclass(frozen=True)
class LibraryUnit:
    """`name` has the header `<name>_unit.h`; `defines` are names that generated text calls; `needs` are other units."""

    name: str
    defines: tuple[str, ...]
    needs: tuple[str, ...] = ()

    @property
    def unit(self) -> Unit:
        return Unit(self.name, f"#include <smelt/{self.name}_unit.h>\n")


# Those that take longest to compile come first.
LIBRARY: Final = (
    LibraryUnit("tiles", ()),
    LibraryUnit("depthwise", ("SMELT_CHANNELWISE", "SMELT_POOL")),
    LibraryUnit("window", ("SMELT_CONVOLVE", "SMELT_WINOGRAD"), ("tiles",)),
    LibraryUnit("gemm", ("SMELT_PRODUCT", "SMELT_PACK", "SMELT_FEW", "SMELT_MODEST", "SMELT_MOVE"), ("tiles",)),
)


def library_units(texts: Iterable[str]) -> list[Unit]:
    """The units that these texts need, in the order of `LIBRARY`."""
    whole = "\n".join(texts)
    named = {entry.name for entry in LIBRARY if any(name in whole for name in entry.defines)}
    needed = named | {other for entry in LIBRARY if entry.name in named for other in entry.needs}
    return [entry.unit for entry in LIBRARY if entry.name in needed]
