"""The registry of micro-kernels: what each needs, takes and gives, under a name that tells all.

Input: nothing; plug-ins register their own. Output: `MicroKernel` records. Invariant: a key (operation, features, types
of A, B and the accumulator, MR, NR, KR) has one kernel. `header` defines it from a template, as `smelt_` and its name
(`gemm/micro_names.h`); the tests compare the names of all headers, for every build, with the registry.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from smelt.base.dtype import find_dtype
from smelt.base.errors import CodegenError
from smelt.base.features import find_feature, with_needed
from smelt.base.target import TARGETS, Target

Shape = tuple[int, int]  # rows (MR) and columns (NR), or rows and vectors of a row


@dataclass(frozen=True)
class MicroKernel:
    """MR rows of A times NR columns of B, whose elements are interleaved by KR, summed in the accumulator's type.
    `feature` is the last CPU feature that it needs."""

    operation: str
    feature: str
    a: str
    b: str
    accumulator: str
    mr: int
    nr: int
    kr: int
    header: str

    @property
    def name(self) -> str:
        """Such as f32_gemm_6x16__avx2: types, one where all are the same; operation; MR x NR, c and KR; feature."""
        types = self.a if self.a == self.b == self.accumulator else f"{self.a}{self.b}{self.accumulator}"
        interleaved = f"c{self.kr}" if self.kr > 1 else ""
        return f"{types}_{self.operation}_{self.mr}x{self.nr}{interleaved}__{self.feature}"

    @property
    def family(self) -> str:
        """All kernels of these types and this operation."""
        return self.name.partition(f"_{self.mr}x")[0]

    @property
    def features(self) -> frozenset[str]:
        return with_needed(self.feature)

    @property
    def target(self) -> Target:
        """The build whose units hold it: the best one that needs nothing more."""
        return max((t for t in TARGETS if t.features <= self.features), key=lambda target: target.index)


class MicroKernels:
    """Those that are known, by name."""

    def __init__(self, kernels: Iterable[MicroKernel] = ()) -> None:
        self.by_name: dict[str, MicroKernel] = {}
        self.register(*kernels)

    def register(self, *kernels: MicroKernel) -> None:
        for kernel in kernels:
            find_feature(kernel.feature)
            for dtype in (kernel.a, kernel.b, kernel.accumulator):
                find_dtype(dtype)
            if kernel.name in self.by_name:
                raise CodegenError("SM-CODEGEN-001", f"there are two micro-kernels {kernel.name}")
            self.by_name[kernel.name] = kernel

    def forget(self, *names: str) -> None:
        for name in names:
            self.by_name.pop(name, None)

    def __iter__(self) -> Iterator[MicroKernel]:
        return iter(self.by_name.values())

    def of(self, family: str, features: Iterable[str]) -> tuple[MicroKernel, ...]:
        """Those of a family that run on a machine with these features, for its best ones: they make others useless."""
        present = frozenset(features)
        able = [kernel for kernel in self if kernel.family == family and kernel.features <= present]
        return tuple(k for k in able if not any(k.features < other.features for other in able))


# Elements of a vector of float32.
LANES: Final = {"sse4": 4, "avx2": 8, "avx512": 16, "neon": 4, "neonfp16": 4}


def _rows(most: int, wide: int) -> list[Shape]:
    return [(rows, wide) for rows in range(1, most + 1)]


def _f32(operation: str, header: str, shapes: Mapping[str, Sequence[Shape]]) -> Iterator[MicroKernel]:
    """Shapes by feature, in rows and vectors; NEON's are the same with half floats."""
    for feature, every in {**shapes, **({"neonfp16": shapes["neon"]} if "neon" in shapes else {})}.items():
        for mr, vectors in every:
            yield MicroKernel(operation, feature, "f32", "f32", "f32", mr, vectors * LANES[feature], 1, header)


_GEMM: Final = {
    "sse4": [*_rows(4, 2), (1, 8), (2, 4)],
    "avx2": [*_rows(6, 2), (1, 8), (2, 4), (3, 4), *_rows(12, 1)],
    "avx512": [*_rows(14, 1), *_rows(14, 2), *_rows(6, 4), *_rows(3, 8)],
    "neon": [*_rows(6, 4), (1, 16), (2, 8), (3, 8)],
}
_EPILOGUE: Final = {
    "sse4": _rows(4, 2),
    "avx2": _rows(6, 2),
    "avx512": [*_rows(14, 1), *_rows(14, 2), *_rows(6, 4)],
    "neon": _rows(6, 4),
}
_EAGER: Final = {"avx512": [(5, 4), (6, 4)]}
_GEMV: Final = {
    feature: [(1, 4), (2, 4), (3, 2), (4, 2), *_rows(4, 1)] for feature in ("sse4", "avx2", "avx512", "neon")
}
_LINES: Final = {
    "sse4": [(4, 2), (2, 2), (1, 2)],
    "avx2": [(6, 2), (3, 2), (1, 2), (12, 1), (8, 1), (4, 1), (1, 1)],
    "avx512": [(14, 2), (8, 2), (4, 2), (1, 2), (14, 1), (8, 1), (4, 1), (1, 1)],
    "neon": [(6, 4), (3, 4), (1, 4)],
}


def _dots() -> Iterator[MicroKernel]:
    """Dot products along K, a vector of it at a time: as many windows as there are registers, and one."""
    many, few = (8, 8, 6, 5, 4, 4, 3, 3), (8, 5, 3, 3, 2, 2, 2, 2)
    for feature, lanes in LANES.items():
        tall = few if feature in {"sse4", "avx2"} else many
        for columns in range(1, 9):
            for rows in (tall[columns - 1], 1):
                yield MicroKernel("igemm", feature, "f32", "f32", "f32", rows, columns, lanes, "conv/convolve_dots.h")


# Rows and columns of the widest tiles; each has one of a single panel beside it.
_INT8: Final = {
    "sse4": [(1, 32), (2, 16)],
    "avx2": [(1, 64), (2, 32), (3, 32), (4, 16), (5, 16), (6, 16)],
    "avx512": [*_rows(3, 128), *((r, 64) for r in (4, 5, 6)), *((r, 32) for r in range(7, 13))],
}
_INT8_AS: Final = {
    "neon": "avx2", "neonfp16": "avx2", "avxvnni": "avx2", "avx512vnni": "avx512", "dotprod": "avx2", "i8mm": "avx2",
}  # fmt: skip
_INT8_BYTES: Final = {
    "avxvnni": "u8",
    "avx512vnni": "u8",
    "dotprod": "i8",
    "i8mm": "u8",
}  # of A, by dot products


def _int8() -> Iterator[MicroKernel]:
    """A is bytes, or int16 after its zero point was taken from it; the first kind alone has steps of dot products."""
    for feature, alike in {**{name: name for name in _INT8}, **_INT8_AS}.items():
        shapes = dict.fromkeys([*((rows, 16) for rows, _ in _INT8[alike]), *_INT8[alike]])
        header = "int8/int8_dots_arm.h" if feature in {"dotprod", "i8mm"} else "int8/int8_tiles.h"
        for a in (_INT8_BYTES[feature],) if feature in _INT8_BYTES else ("u8", "i16"):
            for rows, columns in shapes:
                yield MicroKernel("gemm", feature, a, "i8", "i32", rows, columns, 4, header)


def _nbits() -> Iterator[MicroKernel]:
    """Weights of 2, 4 and 8 bits, centered or with zero points, over float32 and over 8-bit activations."""
    rows = {"avx512": (1, 2, 4, 8), "avx512vnni": (1, 2, 4, 8), "avx2": (1, 2, 4), "avxvnni": (1, 2, 4)}
    for feature in ("sse4", "avx2", "avx512", "neon", "neonfp16", "avxvnni", "avx512vnni"):
        for bits, zeros, mr in itertools.product((2, 4, 8), ("", "_zeros"), rows.get(feature, (1, 2))):
            if "vnni" not in feature:
                types = ("f32", f"u{bits}", "f32", mr, 16, 32 // bits, "nbits/nbits_gemv.h")
                yield MicroKernel(f"gemv{zeros}", feature, *types)
            dots = ("i8", f"u{bits}", "i32", mr, 16, 32 // bits, "nbits/nbits_dots.h")
            yield MicroKernel(f"gemm{zeros}", feature, *dots)


def _int8_direct() -> Iterator[MicroKernel]:
    """Rows of bytes where they lie, for VNNI alone; signed ones are made unsigned in registers."""
    for feature in ("avxvnni", "avx512vnni"):
        widest = _INT8[_INT8_AS[feature]]
        for a in ("u8", "i8"):
            for rows, columns in dict.fromkeys([*((rows, 16) for rows, _ in widest), *widest]):
                yield MicroKernel("igemm", feature, a, "i8", "i32", rows, columns, 4, "int8/int8_direct.h")


def _bf16() -> Iterator[MicroKernel]:
    """Both operands in bfloat16, two k at a time."""
    for rows, columns in [(r, c) for c, most in ((16, 12), (32, 12), (64, 6)) for r in range(1, most + 1)]:
        types = ("bf16", "bf16", "f32", rows, columns, 2, "half/bf16_tiles.h")
        yield MicroKernel("gemm", "avx512bf16", *types)


MICRO_KERNELS: Final = MicroKernels([
    *_f32("gemm", "gemm/gemm_micro.h", _GEMM),
    *_f32("gemm_eager", "gemm/gemm_micro.h", _EAGER),
    *_f32("gemm_epilogue", "conv/convolve_epilogue.h", _EPILOGUE),
    *_f32("gemm_epilogue_eager", "conv/convolve_epilogue.h", _EAGER),
    *_f32("gemv", "gemm/gemv.h", _GEMV),
    *_f32("igemm", "conv/convolve_lines.h", _LINES),
    *_dots(),
    *_int8(),
    *_nbits(),
    *_int8_direct(),
    *_bf16(),
])  # fmt: skip


_HEAD: Final = """# Micro-kernels

Each is MR rows of A times NR columns of B, defined from a template by the header of its row and called
`smelt_<types>_<operation>_<MR>x<NR>[c<KR>]__<feature>`: the types of A, B and the accumulator, one where all are the
same; the last CPU feature that it needs; how many k are interleaved, where that is not 1. `gemm_epilogue` applies bias,
addend and limits before the only store; `igemm` reads the windows of a convolution where they lie; `zeros` have zero
points; `eager` prefetches twice as much. A name ends in the feature, so a profile tells which build runs.
`smelt explain` names the family of each kernel form. The registry is `codegen/c/micro_kernels.py`;
[the recipe](extending.md#a-micro-kernel) adds one. This page is made by `python -m smelt.codegen.c.micro_kernels`.

| family | feature | header | MR x NR, c KR |
|---|---|---|---|
"""


def _ranges(rows: Iterable[int]) -> str:
    """1, 2, 3, 8 as 1-3, 8."""
    parts: list[list[int]] = []
    for row in sorted(rows):
        if parts and parts[-1][-1] == row - 1:
            parts[-1].append(row)
        else:
            parts.append([row])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def page() -> str:
    """docs/micro_kernels.md."""
    rows: dict[tuple[str, str, str], dict[str, list[int]]] = {}
    for kernel in MICRO_KERNELS:
        shapes = rows.setdefault((kernel.family, kernel.feature, kernel.header), {})
        shapes.setdefault(f"{kernel.nr}" + (f"c{kernel.kr}" if kernel.kr > 1 else ""), []).append(kernel.mr)
    text = _HEAD
    for (family, feature, header), shapes in rows.items():
        listed = "; ".join(f"{_ranges(every)} x {nr}" for nr, every in shapes.items())
        text += f"| {family} | {feature} | {header} | {listed} |\n"
    return text


if __name__ == "__main__":
    print(page(), end="")
