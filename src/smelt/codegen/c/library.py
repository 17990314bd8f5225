"""Units that no model changes: the kernels that generated code calls, compiled once per compiler and CPU level.

Input: names of units that kernels and functions link. Output: these units, and what they call in turn.
Invariant: a unit's text is one include of a header `<name>_unit.h`, so its object is found in the cache whatever the
model is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import onnx_ir as ir

from smelt.base.errors import CodegenError
from smelt.codegen.settings import GEMM_UNIT, HALF_UNIT
from smelt.ir.kernel import Function
from smelt.ir.records import Source, Unit

from .extern import function_unit
from .layout.window_sizes import DEPTHWISE_LINES, LEAST_CHANNELS, lines_unit


@dataclass(frozen=True)
class LibraryUnit:
    """`name` is an instance of the header `<room>/<header>_unit.h` with these `numbers`; `needs` are other units."""

    name: str
    room: str
    needs: tuple[str, ...] = ()
    optimize: int = 2
    header: str = ""
    numbers: tuple[tuple[str, int], ...] = ()

    @property
    def unit(self) -> Unit:
        numbers = "".join(f"#define {name} {value}\n" for name, value in self.numbers)
        include = f"#include <smelt/{self.room}/{self.header or self.name}_unit.h>\n"
        return Unit(self.name, numbers + include, optimize=self.optimize)


def _lines(taps: int, stride: int) -> LibraryUnit:
    numbers = (("SMELT_LINE_TAPS", taps), ("SMELT_LINE_STRIDE", stride))
    return LibraryUnit(lines_unit(taps, stride), "conv", header="depthwise_lines", numbers=numbers)


INCLUDE: Final = Path(__file__).parent / "include"
# Those that take longest to compile come first.
LIBRARY: Final = (
    # Its loops are spelled out: the compiler has nothing to choose there.
    LibraryUnit("tiles", "gemm", optimize=1),
    LibraryUnit("winograd", "conv", ("window", "tiles")),
    LibraryUnit("window", "conv", ("tiles",)),
    LibraryUnit("depthwise", "conv"),
    LibraryUnit("depthwise_patch", "conv", ("depthwise",)),
    *(_lines(taps, stride) for taps, stride in DEPTHWISE_LINES),
    LibraryUnit("convolve_dots", "conv", ("tiles",)),
    LibraryUnit("convolve_narrow", "conv", ("tiles",)),
    LibraryUnit("pool", "conv"),
    LibraryUnit(GEMM_UNIT, "gemm", ("tiles",)),
    LibraryUnit(HALF_UNIT, "half", ("tiles",)),
    LibraryUnit("half_window", "half", ("tiles",)),
    # What launches kernels runs once a call: it need not be fast.
    LibraryUnit("launch_gemm", "gemm", (GEMM_UNIT,), optimize=0),
    LibraryUnit("launch_b2b_gemm", "attention", optimize=0),
    LibraryUnit("launch_window", "conv", optimize=0),
)

_FUNCTIONS: Final = (
    "recurrent/recurrent", "int8/int8", "nbits/nbits", "nbits/gather_blocks", "attention/grouped_queries",
    "functions/roi_align", "functions/suppression",
)  # fmt: skip
_PRODUCTS: Final = {
    "Attention", "Einsum", "FusedMatMul", "Gemm", "GroupQueryAttention", "MatMul", "MultiHeadAttention", "QAttention",
}  # fmt: skip
_CONVOLUTIONS: Final = {"Conv", "ConvTranspose", "FusedConv"}
_POOLS: Final = {"AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool", "MaxPool"}


def library_source() -> Source:
    """All units, and functions in C that take long to compile, for an installation that has them compiled."""
    functions = [function_unit(f"#include <smelt/{name}_unit.h>\n") for name in _FUNCTIONS]
    return Source((*(entry.unit for entry in LIBRARY), *functions), (), (INCLUDE,))


def likely_source(nodes: Iterable[ir.Node]) -> Source:
    """The units that these nodes will probably need, seen before anything is known about their types and sizes."""
    named: set[str] = set()
    for node in nodes:
        if node.op_type in _CONVOLUTIONS:
            named |= _likely_of_convolution(node)
        elif node.op_type in _PRODUCTS:
            named |= {"tiles", "gemm"}
        elif node.op_type in _POOLS:
            named.add("pool")
    return Source(tuple(entry.unit for entry in LIBRARY if entry.name in named), (), (INCLUDE,))


def _likely_of_convolution(node: ir.Node) -> set[str]:
    weights = node.inputs[1] if len(node.inputs) > 1 else None
    shape = list(weights.shape) if weights is not None and weights.shape is not None else []
    if node.attributes.get_int("group", 1) != 1:
        return {"depthwise"} if shape[1:2] == [1] else {"tiles", "window"}
    strides = node.attributes.get("strides")
    square = shape[2:] == [3, 3] and (strides is None or set(strides.as_ints()) == {1})
    wide = all(isinstance(size, int) and size >= LEAST_CHANNELS for size in shape[:2])
    return (
        {"tiles", "window", "winograd"} if square and wide and node.op_type != "ConvTranspose" else {"tiles", "window"}
    )


def library_units(links: Iterable[str]) -> list[Unit]:
    """The units of these names and those that they call, in the order of `LIBRARY`."""
    named = set(links)
    unknown = sorted(named - {entry.name for entry in LIBRARY})
    if unknown:
        known = ", ".join(entry.name for entry in LIBRARY)
        raise CodegenError("SM-CODEGEN-001", f"the library has no unit {unknown[0]!r}", hint=f"It has {known}.")
    needed = named | {other for entry in LIBRARY if entry.name in named for other in entry.needs}
    return [entry.unit for entry in LIBRARY if entry.name in needed]


def function_units(functions: Iterable[Function]) -> list[Unit]:
    """The units that define functions in C, and what they link: the same for every backend."""
    names: dict[str, dict[str, None]] = {}
    links: set[str] = set()
    for function in functions:
        names.setdefault(function.text, {})[function.name] = None
        links |= set(function.links)
    return [*library_units(links), *(function_unit(text, *every) for text, every in names.items())]
