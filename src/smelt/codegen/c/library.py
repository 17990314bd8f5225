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
from smelt.ops import made_by

from .extern import function_unit
from .layout.window_sizes import DEPTHWISE_LINES, LEAST_CHANNELS, depthwise_unit, lines_unit


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
    "recurrent/recurrent", "int8/int8", "int8/int8_conv", "int8/int8_depthwise", "int8/int8_lstm", "int8/int8_stack",
    "nbits/nbits", "nbits/gather_blocks", "attention/grouped_queries", "functions/roi_align", "functions/suppression",
)  # fmt: skip
_BYTES: Final = (ir.DataType.INT8, ir.DataType.UINT8)


def library_source() -> Source:
    """All units, and functions in C that take long to compile, for an installation that has them compiled."""
    functions = [function_unit(f"#include <smelt/{name}_unit.h>\n") for name in _FUNCTIONS]
    return Source((*(entry.unit for entry in LIBRARY), *functions), (), (INCLUDE,))


def likely_source(nodes: Iterable[ir.Node]) -> Source:
    """The units that these nodes will probably need, seen before anything is known about their types and sizes."""
    named: set[str] = set()
    for node in nodes:
        if not _of_bytes(node):
            named |= _LIKELY.get(made_by(node), _nothing)(node)
    return Source(tuple(library_units(named)), (), (INCLUDE,))


def _of_bytes(node: ir.Node) -> bool:
    """Whether it has 8-bit constants: such products are functions of their own."""
    return any(value is not None and value.const_value is not None and value.dtype in _BYTES for value in node.inputs)


def _nothing(node: ir.Node) -> set[str]:
    del node
    return set()


def _likely_of_contraction(node: ir.Node) -> set[str]:
    del node
    return {GEMM_UNIT, "launch_gemm"}


def _likely_of_pool(node: ir.Node) -> set[str]:
    del node
    return {"pool", "launch_window"}


def _likely_of_convolution(node: ir.Node) -> set[str]:
    weights = node.inputs[1] if len(node.inputs) > 1 else None
    shape = list(weights.shape) if weights is not None and weights.shape is not None else []
    sizes = [size for size in shape if isinstance(size, int)]
    if len(sizes) < 3 or len(sizes) < len(shape):
        return {"window", "launch_window"}
    kernel, stride, dilation = sizes[2:], _numbers(node, "strides"), _numbers(node, "dilations")
    if node.attributes.get_int("group", 1) != 1:
        one = depthwise_unit(kernel, stride[-1], dilation[-1]) if sizes[1] == 1 else "window"
        return {one, "launch_window"}
    near = kernel == [3, 3] and set(stride) == set(dilation) == {1} and min(sizes[:2]) >= LEAST_CHANNELS
    return {"window", "launch_window", *(("winograd",) if near else ())}


def _numbers(node: ir.Node, name: str) -> list[int]:
    found = node.attributes.get(name)
    return list(found.as_ints()) if found is not None else [1]


_LIKELY: Final = {
    "contraction": _likely_of_contraction, "convolution": _likely_of_convolution, "pool": _likely_of_pool,
}  # fmt: skip


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
